// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>

#include "kformer/core/scalar.hpp"
#include "kformer/core/views.hpp"

/// \file
/// Views as plain structs: what the compiled kernels take instead of View types.

namespace kformer {

/// A strided array of `Rank` extents inside a kernel; strides are in elements.
template <class T, int Rank>
struct Strided {
  T* data;                    ///< first element
  std::int64_t extent[Rank];  ///< slowest first
  std::int64_t stride[Rank];  ///< elements between neighbours along each extent

  /// The element at the given indices.
  template <class... I>
    requires(sizeof...(I) == Rank)
  KOKKOS_FUNCTION T& operator()(I... index) const {
    const std::int64_t at[Rank] = {static_cast<std::int64_t>(index)...};
    std::int64_t offset = 0;
    for (int r = 0; r < Rank; ++r) offset += at[r] * stride[r];
    return data[offset];
  }
};

/// A type-erased View: address, storage type, extents and strides (in elements), slowest extent first.
struct TensorRef {
  static constexpr int max_rank = 4;  ///< extents and strides beyond `rank` are unused

  void* data = nullptr;                         ///< first element; may be null if an extent is 0
  DType dtype = DType::f32;                     ///< storage type
  int rank = -1;                                ///< −1: the operand is absent
  std::array<std::int64_t, max_rank> extent{};  ///< slowest first
  std::array<std::int64_t, max_rank> stride{};  ///< in elements

  /// Whether the operand is present.
  bool present() const { return rank >= 0; }

  /// Number of elements.
  std::int64_t size() const {
    std::int64_t n = 1;
    for (int r = 0; r < rank; ++r) n *= extent[r];
    return rank < 0 ? 0 : n;
  }

  /// Whether both have the same rank and extents.
  bool same_extents(const TensorRef& other) const {
    if (rank != other.rank) return false;
    for (int r = 0; r < rank; ++r)
      if (extent[r] != other.extent[r]) return false;
    return true;
  }

  /// Whether rank and extents are exactly these.
  bool has_extents(std::initializer_list<std::int64_t> wanted) const {
    if (rank != static_cast<int>(wanted.size())) return false;
    int r = 0;
    for (std::int64_t e : wanted)
      if (extent[r++] != e) return false;
    return true;
  }

  /// The typed array for use in a kernel. `T` must match `dtype` and `Rank` must match `rank`.
  template <class T, int Rank>
  Strided<T, Rank> as() const {
    Strided<T, Rank> s{static_cast<T*>(data), {}, {}};
    for (int r = 0; r < Rank; ++r) {
      s.extent[r] = extent[r];
      s.stride[r] = stride[r];
    }
    return s;
  }
};

/// The address, storage type, extents and strides of `view`. Constness is dropped here because kernels take
/// inputs and outputs alike; the public functions refuse const outputs at compile time and never write inputs.
template <AnyView V>
TensorRef tensor_ref(const V& view) {
  static_assert(V::rank() <= TensorRef::max_rank, "kformer: Views of rank 0 to 4 are supported");
  TensorRef ref;
  using value_type = typename V::non_const_value_type;
  ref.data = const_cast<value_type*>(view.data());
  ref.dtype = dtype_of<value_type>;
  ref.rank = static_cast<int>(V::rank());
  for (int r = 0; r < ref.rank; ++r) {
    ref.extent[r] = static_cast<std::int64_t>(view.extent(r));
    ref.stride[r] = static_cast<std::int64_t>(view.stride(r));
  }
  return ref;
}

}  // namespace kformer
