// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>

#include "kformer/core/views.hpp"

/// \file
/// The only memory that public functions may allocate themselves.

namespace kformer {

/// Enough scratch per thread for every call with head dimensions up to 256 and quantised rows of up to 32768
/// elements. A sequence of at most 16 queries per key head may have up to 512 queries of all heads.
inline constexpr std::size_t usual_scratch_bytes = std::size_t(4) << 20;

/// Lets the scratch memory of `exec` hold `bytes` for each of its threads, so that later calls on `exec` that need
/// no more allocate nothing.
///
/// On hosts kernels keep tiles in Kokkos team scratch. Kokkos keeps one such memory per instance, lets it grow when
/// a kernel needs more than it has, and frees it with the instance. Without a reservation, a call that needs more
/// than any before it allocates the memory of each thread anew. It is no part of a workspace, and of a ledger
/// only by `reserve_scratch(exec, ledger)` (`kformer/memory/booked_scratch.hpp`); the allocation callbacks of
/// Kokkos Tools see it. On devices this does nothing.
///
/// \param exec   the instance on which functions will be called
/// \param bytes  per thread. Larger calls need more, in proportion: 8 MiB for head dimensions up to 512
template <class Exec>
void reserve_scratch(const Exec& exec, std::size_t bytes = usual_scratch_bytes) {
  if constexpr (Impl::is_host_space<Exec>) {
    using Policy = Kokkos::TeamPolicy<Exec>;
    Policy policy(exec, 1, 1);
    policy.set_scratch_size(1, Kokkos::PerTeam(bytes));
    Kokkos::parallel_for("kformer::reserve_scratch", policy, [](const typename Policy::member_type&) {});
  }
}

}  // namespace kformer
