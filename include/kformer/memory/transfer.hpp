// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>
#include <type_traits>

#include "kformer/core/error.hpp"
#include "kformer/core/views.hpp"
#include "kformer/memory/ledger.hpp"

/// \file
/// Copies between memory spaces, counted in a ledger.

namespace kformer {

namespace Impl {
#if defined(KOKKOS_HAS_SHARED_HOST_PINNED_SPACE)
using PinnedSpace = Kokkos::SharedHostPinnedSpace;
#else
using PinnedSpace = Kokkos::HostSpace;
#endif

/// The extents of a View: `[3,5]`.
template <AnyView V>
std::string extents_of(const V& view) {
  std::string text;
  for (std::size_t r = 0; r < V::rank(); ++r) text += (r > 0 ? "," : "") + std::to_string(view.extent(r));
  return "[" + text + "]";
}
}  // namespace Impl

/// The host memory to exchange with `MemorySpace`: page-locked where the host cannot reach that space and the
/// backend has such memory, so that copies run beside kernels; else `Kokkos::HostSpace`. Page-locking is
/// slow: allocate the memory once.
template <class MemorySpace>
using HostStagingSpace =
    std::conditional_t<Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible,
                       Kokkos::HostSpace, Impl::PinnedSpace>;

/// Copies `bytes` bytes from memory of `FromSpace` to memory of `ToSpace`, in the order of the work of `exec`, and
/// counts them in `ledger`. A ledger that only counts copies nothing.
///
/// The call is asynchronous on `exec`: both ranges must last until that work is done. For that on a GPU, host
/// memory must be of `HostStagingSpace`; the runtime stages other host memory while the caller waits.
///
/// \param exec    the instance, of a space that can reach one of both memories
/// \param ledger  counts the bytes by the names of both spaces
/// \param to      first byte to write
/// \param from    first byte to read; the ranges do not overlap
/// \param bytes   how many
template <class ToSpace, class FromSpace, ExecutionSpace Exec>
void transfer(const Exec& exec, Ledger& ledger, void* to, const void* from, std::size_t bytes) {
  static_assert(Kokkos::SpaceAccessibility<Exec, ToSpace>::accessible ||
                    Kokkos::SpaceAccessibility<Exec, FromSpace>::accessible,
                "kformer::transfer: the execution space must reach one of both memories");
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  ledger.book_transfer(FromSpace::name(), ToSpace::name(), bytes);
  if (ledger.counts_only()) return;
  Kokkos::deep_copy(
      exec, Kokkos::View<std::byte*, ToSpace, Unmanaged>(static_cast<std::byte*>(to), bytes),
      Kokkos::View<const std::byte*, FromSpace, Unmanaged>(static_cast<const std::byte*>(from), bytes));
}

/// The same for two Views of equal extents and strides without gaps.
/// \param exec    the instance, of a space that can reach one of both memories
/// \param ledger  counts the bytes by the names of both memory spaces
/// \param to      any shape and type
/// \param from    the same type
/// \throws DimensionMismatch if extents or strides differ, or if there are gaps
template <ExecutionSpace Exec, AnyView To, AnyView From>
void transfer(const Exec& exec, Ledger& ledger, const To& to, const From& from) {
  using T = typename To::value_type;
  static_assert(!std::is_const_v<T>, "kformer::transfer: the values of `to` must not be const");
  static_assert(std::is_same_v<T, typename From::non_const_value_type> && To::rank() == From::rank(),
                "kformer::transfer: both Views must have the same rank and the same type of values");
  bool same = to.span_is_contiguous() && from.span_is_contiguous();
  for (std::size_t r = 0; r < To::rank(); ++r)
    same = same && to.extent(r) == from.extent(r) && (to.extent(r) <= 1 || to.stride(r) == from.stride(r));
  if (!same)
    throw DimensionMismatch("kformer::transfer: extents, strides or gaps do not match: to" +
                            Impl::extents_of(to) + " from" + Impl::extents_of(from) +
                            "; expected equal extents and strides without gaps");
  transfer<typename To::memory_space, typename From::memory_space>(exec, ledger, to.data(), from.data(),
                                                                   to.span() * sizeof(T));
}

}  // namespace kformer
