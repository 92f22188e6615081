// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kformer/core/tensor_ref.hpp"

/// \file
/// Dense host arrays for the references. `Real` is the type of arithmetic, and a reference rounds each array
/// that a textbook would write to memory through `Store`: <double, double> is the oracle for float and 16-bit
/// kernels, <long double, long double> the one for double, and <compute_t<T>, T> the naive computation in
/// precision T.

namespace kformer::Impl {

/// `value` as stored in type `Store` and loaded again.
template <class Store, class Real>
Real stored(Real value) {
  if constexpr (sizeof(Store) == 2)
    return static_cast<Real>(static_cast<float>(Store(static_cast<float>(value))));
  else
    return static_cast<Real>(static_cast<Store>(value));
}

/// A dense array of up to four extents, slowest first.
template <class Real>
class HostTensor {
 public:
  HostTensor() = default;
  explicit HostTensor(std::initializer_list<std::int64_t> extents, Real fill = Real(0)) {
    int r = 0;
    for (std::int64_t e : extents) m_extent[r++] = e;
    m_rank = r;
    m_data.assign(static_cast<std::size_t>(product()), fill);
  }

  int rank() const { return m_rank; }
  std::int64_t extent(int r) const { return m_extent[r]; }
  bool present() const { return m_rank >= 0; }
  std::vector<Real>& values() { return m_data; }
  const std::vector<Real>& values() const { return m_data; }

  template <class... I>
  Real& operator()(I... index) {
    return m_data[offset(index...)];
  }
  template <class... I>
  Real operator()(I... index) const {
    return m_data[offset(index...)];
  }

 private:
  std::int64_t product() const {
    std::int64_t n = 1;
    for (int r = 0; r < m_rank; ++r) n *= m_extent[r];
    return n;
  }
  template <class... I>
  std::size_t offset(I... index) const {
    std::int64_t at = 0;
    int r = 0;
    ((at = at * m_extent[r++] + static_cast<std::int64_t>(index)), ...);
    return static_cast<std::size_t>(at);
  }

  int m_rank = -1;
  std::int64_t m_extent[TensorRef::max_rank] = {0, 0, 0, 0};
  std::vector<Real> m_data;
};

/// Elements of a row: the last extent, and 1 where there are no rows.
template <class Real>
std::size_t row_length(const HostTensor<Real>& t) {
  return t.rank() < 2 ? 1 : static_cast<std::size_t>(std::max<std::int64_t>(1, t.extent(t.rank() - 1)));
}

/// Calls `f(linear_index, element_offset)` for every element of `ref`, in row-major order.
template <class F>
void for_each_element(const TensorRef& ref, F&& f) {
  const std::int64_t n = ref.size();
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, offset = 0;
    for (int r = ref.rank - 1; r >= 0; --r) {
      offset += rest % ref.extent[r] * ref.stride[r];
      rest /= ref.extent[r];
    }
    f(static_cast<std::size_t>(i), offset);
  }
}

/// Copies host-accessible memory of any storage type into a dense array. Absent operands stay absent.
template <class Real>
HostTensor<Real> read_tensor(const TensorRef& ref) {
  HostTensor<Real> t;
  if (!ref.present()) return t;
  switch (ref.rank) {
    case 0:
      t = HostTensor<Real>({});
      break;
    case 1:
      t = HostTensor<Real>({ref.extent[0]});
      break;
    case 2:
      t = HostTensor<Real>({ref.extent[0], ref.extent[1]});
      break;
    case 3:
      t = HostTensor<Real>({ref.extent[0], ref.extent[1], ref.extent[2]});
      break;
    default:
      t = HostTensor<Real>({ref.extent[0], ref.extent[1], ref.extent[2], ref.extent[3]});
  }
  const auto read_integers = [&]<class I>(std::type_identity<I>) {
    const auto* data = static_cast<const I*>(ref.data);
    for_each_element(ref, [&](std::size_t i, std::int64_t at) { t.values()[i] = static_cast<Real>(data[at]); });
    return t;
  };
  if (ref.dtype == DType::i32) return read_integers(std::type_identity<std::int32_t>{});
  if (ref.dtype == DType::u8) return read_integers(std::type_identity<std::uint8_t>{});
  dispatch_dtype(ref.dtype, [&]<class T>(std::type_identity<T>) {
    const auto* data = static_cast<const T*>(ref.data);
    for_each_element(ref, [&](std::size_t i, std::int64_t at) {
      t.values()[i] = static_cast<Real>(static_cast<compute_t<T>>(data[at]));
    });
  });
  return t;
}

/// Copies a dense array into host-accessible memory, rounding to its storage type. Absent operands are skipped.
template <class Real>
void write_tensor(const HostTensor<Real>& t, const TensorRef& ref) {
  if (!ref.present()) return;
  const auto write_integers = [&]<class I>(std::type_identity<I>) {
    auto* data = static_cast<I*>(ref.data);
    for_each_element(ref, [&](std::size_t i, std::int64_t at) { data[at] = static_cast<I>(t.values()[i]); });
  };
  if (ref.dtype == DType::i32) return write_integers(std::type_identity<std::int32_t>{});
  if (ref.dtype == DType::u8) return write_integers(std::type_identity<std::uint8_t>{});
  dispatch_dtype(ref.dtype, [&]<class T>(std::type_identity<T>) {
    auto* data = static_cast<T*>(ref.data);
    for_each_element(
        ref, [&](std::size_t i, std::int64_t at) { data[at] = T(static_cast<compute_t<T>>(t.values()[i])); });
  });
}

/// Adds a dense array to host-accessible memory: how parameter gradients are returned.
template <class Real>
void accumulate_tensor(const HostTensor<Real>& t, const TensorRef& ref) {
  if (!ref.present()) return;
  HostTensor<Real> total = read_tensor<Real>(ref);
  for (std::size_t i = 0; i < t.values().size(); ++i) total.values()[i] += t.values()[i];
  write_tensor(total, ref);
}

}  // namespace kformer::Impl

namespace kformer::Impl::reference {
// References call functions by these names, and a type of arithmetic that is a class brings its own.
using std::abs, std::atan, std::cos, std::exp, std::isfinite, std::isinf, std::isnan, std::log, std::pow,
    std::sin, std::sqrt, std::tanh;
}  // namespace kformer::Impl::reference
