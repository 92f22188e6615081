// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>

#include "kformer/core/views.hpp"

namespace kformer::Impl {

/// A policy of `league` teams, each with about `work` independent elements along its fastest loop. On the host
/// one thread is one team, whose loops are plain loops; on a device a team has up to 256 threads in warps of at most 32.
template <class Exec>
Kokkos::TeamPolicy<Exec> team_policy(const Exec& exec, std::int64_t league, std::int64_t work) {
  if constexpr (is_host_space<Exec>) {
    return Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(league), 1);
  } else {
    const int vector_length = std::min(32, Kokkos::TeamPolicy<Exec>::vector_length_max());
    const std::int64_t threads =
        std::clamp<std::int64_t>((work + vector_length - 1) / vector_length, 1, 256 / vector_length);
    return Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(league), static_cast<int>(threads), vector_length);
  }
}

template <class Exec>
using TeamMember = typename Kokkos::TeamPolicy<Exec>::member_type;

/// Quotient rounded up.
template <class I>
KOKKOS_INLINE_FUNCTION constexpr I ceil_div(I a, I b) {
  return (a + b - 1) / b;
}

}  // namespace kformer::Impl
