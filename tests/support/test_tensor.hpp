// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ops/common/host_tensor.hpp"

/// \file
/// Operands for tests: guard zones before, after and between rows, outputs filled with NaN, inputs from a fixed
/// seed.

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

/// A tensor of storage type T in memory that `Exec` can reach.
template <class Exec, class T>
class TestTensor : public Output {
 public:
  using memory_space = typename Exec::memory_space;

  TestTensor() = default;

  /// Filled with NaN (integers: zero).
  explicit TestTensor(std::vector<std::int64_t> extents, Rows rows = Rows::strided) {
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
    const std::size_t span = static_cast<std::size_t>(std::max<std::int64_t>(stride, 0));
    m_storage = Kokkos::View<T*, memory_space>("kformer::Testing::tensor", span + 2 * guard);
    m_ref.data = m_storage.data() + guard;
    m_initial.assign(m_storage.size(), sentinel());
    T fill{};
    if constexpr (Scalar<T>) fill = T(std::numeric_limits<compute_t<T>>::quiet_NaN());
    for_each_element(m_ref, [&](std::size_t, std::int64_t at) { m_initial[guard + at] = fill; });
    reset();
  }

  /// Normal values times `scale` plus `shift`, rounded to T.
  TestTensor& random(std::mt19937& generator, double scale = 1.0, double shift = 0.0) {
    std::normal_distribution<double> normal;
    for_each_element(m_ref, [&](std::size_t, std::int64_t at) {
      m_initial[guard + at] = T(static_cast<compute_t<T>>(shift + scale * normal(generator)));
    });
    reset();
    return *this;
  }

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
    auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, m_storage);
    TensorRef there = m_ref;
    there.data = host.data() + guard;
    return kformer::Impl::read_tensor<Real>(there);
  }

  void reset() override {
    Kokkos::View<const T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(m_initial.data(),
                                                                                            m_initial.size());
    Kokkos::deep_copy(m_storage, host);
  }

  bool guards_intact() const override {
    const auto host = Kokkos::create_mirror(Kokkos::HostSpace{}, m_storage);
    Kokkos::deep_copy(host, m_storage);
    const T expected = sentinel();
    for_each_element(m_ref, [&](std::size_t, std::int64_t at) { host[guard + at] = expected; });
    for (std::size_t i = 0; i < host.size(); ++i)
      // Bits, for the guard may be a NaN. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
      if (std::memcmp(&host[i], &expected, sizeof(T)) != 0) return false;
    return true;
  }

  std::vector<unsigned char> bits() const override {
    auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, m_storage);
    std::vector<unsigned char> bytes(host.size() * sizeof(T));
    std::memcpy(bytes.data(), host.data(), bytes.size());
    return bytes;
  }

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

  TensorRef m_ref;
  Kokkos::View<T*, memory_space> m_storage;
  std::vector<T> m_initial;
};

}  // namespace kformer::Testing
