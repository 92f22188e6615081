// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ops/common/estimated.hpp"

/// \file
/// Operands for tests: guard zones before, after and between rows, outputs filled with NaN, inputs from a fixed
/// seed.

namespace kformer::Impl {
// In references.cpp.
extern template HostTensor<float> read_tensor(const TensorRef&);
extern template HostTensor<double> read_tensor(const TensorRef&);
extern template HostTensor<long double> read_tensor(const TensorRef&);
extern template HostTensor<Estimated<float>> read_tensor(const TensorRef&);
extern template HostTensor<Estimated<double>> read_tensor(const TensorRef&);
}  // namespace kformer::Impl

namespace kformer::Testing {

/// Extents of an array of rows.
struct RowShape {
  std::int64_t rows, hidden;
};

using kformer::Impl::for_each_element;
using kformer::Impl::HostTensor;

/// The layout of rows: contiguous, or slices of a larger buffer.
enum class Rows { packed, strided, aligned };

/// What the generic list test needs from an output of any type.
class Output {
 public:
  virtual ~Output() = default;
  virtual void reset() = 0;                             ///< back to the initial content
  virtual bool guards_intact() const = 0;               ///< nothing outside the tensor was written
  virtual std::vector<unsigned char> bits() const = 0;  ///< the content, for comparing two runs
};

/// Bytes in `Space`, copied from and to the host.
template <class Space>
class TestMemory {
 public:
  TestMemory() = default;
  explicit TestMemory(std::size_t bytes);

  std::byte* data() const { return m_bytes.data(); }
  std::size_t size() const { return m_bytes.size(); }
  void write(const void* from) const;
  void read(void* to) const;

 private:
  using Host = Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  Kokkos::View<std::byte*, Space> m_bytes;
};

template <class Space>
TestMemory<Space>::TestMemory(std::size_t bytes) : m_bytes("kformer::Testing::tensor", bytes) {}

template <class Space>
void TestMemory<Space>::write(const void* from) const {
  Kokkos::deep_copy(m_bytes, Host(static_cast<std::byte*>(const_cast<void*>(from)), size()));
}

template <class Space>
void TestMemory<Space>::read(void* to) const {
  Kokkos::deep_copy(Host(static_cast<std::byte*>(to), size()), m_bytes);
}

/// A tensor of storage type T in memory that `Exec` can reach. Members outside the class are compiled once: see
/// every_kernel.hpp.
template <class Exec, class T>
class TestTensor : public Output {
 public:
  using memory_space = typename Exec::memory_space;

  TestTensor() = default;

  /// Filled with NaN (integers: zero).
  explicit TestTensor(std::vector<std::int64_t> extents, Rows rows = Rows::strided);

  /// Normal values times `scale` plus `shift`, rounded to T.
  TestTensor& random(std::mt19937& generator, double scale = 1.0, double shift = 0.0)
    requires Scalar<T>;

  /// Element number i (row-major) becomes `value(i)`.
  template <class F>
  TestTensor& fill(F value) {
    for_each_element(m_ref, [&](std::size_t i, std::int64_t at) { m_initial[guard + at] = T(value(i)); });
    reset();
    return *this;
  }

  const TensorRef& ref() const { return m_ref; }

  /// A View of rank N over the tensor.
  template <int N>
  auto view() const {
    using Data = typename Pointer<T, N>::type;
    Kokkos::LayoutStride layout;
    for (int r = 0; r < N; ++r) {
      layout.dimension[r] = static_cast<std::size_t>(m_ref.extent[r]);
      layout.stride[r] = static_cast<std::size_t>(m_ref.stride[r]);
    }
    return Kokkos::View<Data, Kokkos::LayoutStride, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
        static_cast<T*>(m_ref.data), layout);
  }

  /// The content now.
  template <class Real>
  HostTensor<Real> read() const {
    const std::vector<T> host = content();
    TensorRef there = m_ref;
    there.data = const_cast<T*>(host.data()) + guard;
    return kformer::Impl::read_tensor<Real>(there);
  }

  void reset() override;
  bool guards_intact() const override;
  std::vector<unsigned char> bits() const override;

 private:
  static constexpr std::int64_t guard = 64;

  template <class U, int N>
  struct Pointer {
    using type = typename Pointer<U, N - 1>::type*;
  };
  template <class U>
  struct Pointer<U, 0> {
    using type = U;
  };

  static T sentinel() {
    T value;
    std::memset(&value, 0x5a, sizeof(T));
    return value;
  }
  // With the guards.
  std::vector<T> content() const;

  TensorRef m_ref;
  TestMemory<memory_space> m_storage;
  std::vector<T> m_initial;
};

template <class Exec, class T>
TestTensor<Exec, T>::TestTensor(std::vector<std::int64_t> extents, Rows rows) {
  m_ref.dtype = dtype_of<T>;
  m_ref.rank = static_cast<int>(extents.size());
  const std::int64_t pad = rows == Rows::strided ? 5 : rows == Rows::aligned ? 8 : 0;
  std::int64_t stride = 1;
  for (int r = m_ref.rank - 1; r >= 0; --r) {
    m_ref.extent[r] = extents[r];
    m_ref.stride[r] = stride;
    stride *= extents[r];
    if (r == m_ref.rank - 1) stride += pad;
  }
  const std::size_t span = static_cast<std::size_t>(std::max<std::int64_t>(stride, 0)) + 2 * guard;
  m_storage = TestMemory<memory_space>(span * sizeof(T));
  m_ref.data = m_storage.data() + guard * sizeof(T);
  m_initial.assign(span, sentinel());
  T fill{};
  if constexpr (Scalar<T>) fill = T(std::numeric_limits<compute_t<T>>::quiet_NaN());
  for_each_element(m_ref, [&](std::size_t, std::int64_t at) { m_initial[guard + at] = fill; });
  reset();
}

template <class Exec, class T>
TestTensor<Exec, T>& TestTensor<Exec, T>::random(std::mt19937& generator, double scale, double shift)
  requires Scalar<T>
{
  std::normal_distribution<double> normal;
  return fill([&](std::size_t) { return static_cast<compute_t<T>>(shift + scale * normal(generator)); });
}

template <class Exec, class T>
void TestTensor<Exec, T>::reset() {
  m_storage.write(m_initial.data());
}

template <class Exec, class T>
std::vector<T> TestTensor<Exec, T>::content() const {
  std::vector<T> host(m_storage.size() / sizeof(T));
  m_storage.read(host.data());
  return host;
}

template <class Exec, class T>
bool TestTensor<Exec, T>::guards_intact() const {
  std::vector<T> host = content();
  const T expected = sentinel();
  for_each_element(m_ref, [&](std::size_t, std::int64_t at) { host[guard + at] = expected; });
  for (const T& value : host)
    // Bits, for the guard may be a NaN. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (std::memcmp(&value, &expected, sizeof(T)) != 0) return false;
  return true;
}

template <class Exec, class T>
std::vector<unsigned char> TestTensor<Exec, T>::bits() const {
  std::vector<unsigned char> bytes(m_storage.size());
  m_storage.read(bytes.data());
  return bytes;
}

}  // namespace kformer::Testing
