// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>

#include "kformer/core/tensor_ref.hpp"
#include "kformer/ops/impl/launch.hpp"

/// \file
/// What the portable kernels of caches share: work on rows of heads, one by one, and copies of them.

namespace kformer::Impl {

/// A team of one, where a host thread does a row alone.
struct OneThread {};

/// A functor `f(team, item)` as ranges and teams call it.
template <class F>
struct ForEachItem {
  F f;
  KOKKOS_FUNCTION void operator()(const std::int64_t item) const { f(OneThread{}, item); }
  template <class Member>
    requires(!std::is_integral_v<Member>)
  KOKKOS_FUNCTION void operator()(const Member& team) const {
    f(team, static_cast<std::int64_t>(team.league_rank()));
  }
};

/// `f(team, item)` for `count` items of about `work` elements each; on hosts one thread has an item.
template <class Exec, class F>
void for_each_item(const char* label, const Exec& exec, std::int64_t count, std::int64_t work, const F& f) {
  const ForEachItem<F> functor{f};
  if constexpr (is_host_space<Exec>)
    Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, count),
                         functor);
  else
    Kokkos::parallel_for(label, team_policy(exec, count, work), functor);
}

/// `f(i)` for every i below `count`, shared by the threads of a team.
template <class F>
KOKKOS_INLINE_FUNCTION void for_each_of(const OneThread&, std::int64_t count, const F& f) {
  for (std::int64_t i = 0; i < count; ++i) f(i);
}
template <class Member, class F>
KOKKOS_INLINE_FUNCTION void for_each_of(const Member& team, std::int64_t count, const F& f) {
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), f);
}

/// `count` neighbours.
template <class T>
KOKKOS_INLINE_FUNCTION void copy_run(const OneThread&, const T* from, T* to, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
}
template <class Member, class T>
KOKKOS_INLINE_FUNCTION void copy_run(const Member& team, const T* from, T* to, std::int64_t count) {
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), [=](std::int64_t i) { to[i] = from[i]; });
}

/// The heads of a token.
template <class T>
struct HeadRow {
  T* data;
  std::int64_t head_stride;
};

/// The heads of token `n` of (tokens, heads, features).
template <class T>
KOKKOS_INLINE_FUNCTION HeadRow<T> row_of(const Strided<T, 3>& x, std::int64_t n) {
  return {x.data + n * x.stride[0], x.stride[1]};
}

/// `to = from`; contiguous heads are copied as one run.
template <class Team, class T>
KOKKOS_INLINE_FUNCTION void copy_heads(const Team& team, const HeadRow<const T>& from, const HeadRow<T>& to,
                                       std::int64_t heads, std::int64_t dim) {
  if (heads == 1 || (from.head_stride == dim && to.head_stride == dim))
    copy_run(team, from.data, to.data, heads * dim);
  else
    for (std::int64_t h = 0; h < heads; ++h)
      copy_run(team, from.data + h * from.head_stride, to.data + h * to.head_stride, dim);
}

/// Calls `f(std::type_identity<U>{})` with the unsigned integer as wide as an element: copies do not depend on
/// values.
template <class F>
void dispatch_width(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(std::type_identity<std::uint8_t>{});
    case 2:
      return f(std::type_identity<std::uint16_t>{});
    case 4:
      return f(std::type_identity<std::uint32_t>{});
    default:
      return f(std::type_identity<std::uint64_t>{});
  }
}

}  // namespace kformer::Impl
