// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>

/// \file
/// The only memory that public functions may allocate themselves.

namespace kformer {

/// Enough scratch per thread for every kernel with head dimensions up to 256 and quantised rows up to 32768
/// elements.
inline constexpr std::size_t usual_scratch_bytes = std::size_t(4) << 20;

/// Lets the scratch memory of `exec` hold `bytes` for each of its threads, so that later calls on `exec` that need
/// no more allocate nothing.
///
/// On hosts kernels keep tiles in Kokkos team scratch. Kokkos keeps one such memory per instance, lets it grow when a
/// kernel needs more than it has, and frees it with the instance. It is no part of a workspace or of a ledger; the
/// allocation callbacks of Kokkos Tools see it. On devices this does nothing.
///
/// \param exec   the instance on which functions will be called
/// \param bytes  per thread
template <class Exec>
void reserve_scratch(const Exec& exec, std::size_t bytes = usual_scratch_bytes) {
  if constexpr (Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible) {
    using Policy = Kokkos::TeamPolicy<Exec>;
    Policy policy(exec, 1, 1);
    policy.set_scratch_size(1, Kokkos::PerTeam(bytes));
    Kokkos::parallel_for("kformer::reserve_scratch", policy, [](const typename Policy::member_type&) {});
  }
}

}  // namespace kformer
