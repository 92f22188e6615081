// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

/// \file
/// Concepts of Views and instances, and Views of LayoutLeft arrays as row-major ones.

namespace kformer {

/// Any Kokkos View.
template <class V>
concept AnyView = Kokkos::is_view_v<V>;

/// Any Kokkos View of rank `Rank`.
template <class V, int Rank>
concept ViewOf = AnyView<V> && (V::rank() == Rank);

/// Any Kokkos View of values that cannot be written.
template <class V>
concept ConstView = AnyView<V> && std::is_const_v<typename V::value_type>;

/// An instance on which functions launch their kernels: `Kokkos::OpenMP`, `Kokkos::Cuda`, and so on.
template <class E>
concept ExecutionSpace = Kokkos::is_execution_space_v<E>;

namespace Impl {
/// Whether kernels of `Exec` run on the host.
template <class Exec>
inline constexpr bool is_host_space = Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible;

/// Whether the host can read and write memory of `MemorySpace`.
template <class MemorySpace>
inline constexpr bool host_reaches = Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible;

/// Whether the rows of `V` are columns in memory. A LayoutLeft View of rank 1 is as good as any.
template <class V>
inline constexpr bool is_column_major =
    std::is_same_v<typename V::array_layout, Kokkos::LayoutLeft> && (V::rank() >= 2);

/// The data type of a View of this rank: T, T*, T**, ...
template <class T, std::size_t Rank>
struct Pointers {
  using type = typename Pointers<T*, Rank - 1>::type;
};
template <class T>
struct Pointers<T, 0> {
  using type = T;
};
}  // namespace Impl

/// The same memory, read row by row: `as_row_major(view)(l, k, j, i)` is `view(i, j, k, l)`. So a LayoutLeft
/// array (head_dim, heads, seq, batch), as Fortran has it, is the operand (batch, seq, heads, head_dim).
///
/// Nothing is copied, and the result does not keep the memory alive: `view` must outlive it.
///
/// \param view any LayoutLeft View, also a part of a larger one
/// \return a View of the reversed extents; its last extent has unit stride
template <AnyView V>
  requires std::is_same_v<typename V::array_layout, Kokkos::LayoutLeft>
auto as_row_major(const V& view) {
  constexpr std::size_t rank = V::rank();
  Kokkos::LayoutStride layout;
  for (std::size_t r = 0; r < rank; ++r) {
    layout.dimension[r] = view.extent(rank - 1 - r);
    layout.stride[r] = view.stride(rank - 1 - r);
  }
  using Data = typename Impl::Pointers<typename V::value_type, rank>::type;
  return Kokkos::View<Data, Kokkos::LayoutStride, typename V::device_type,
                      Kokkos::MemoryTraits<Kokkos::Unmanaged>>(view.data(), layout);
}

}  // namespace kformer
