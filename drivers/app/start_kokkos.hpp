// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kformer::drivers {

/// To be called before anything is left on disk, and before `start_kokkos`.
/// \throws NotSupported if Kokkos was built for a device that is not there
void require_device();

/// Starts Kokkos; it ends with the result.
/// \param program   as the command line has it
/// \param arguments of Kokkos
/// \param threads   of the host; 0: Kokkos decides
std::unique_ptr<Kokkos::ScopeGuard> start_kokkos(const std::string& program, std::vector<std::string> arguments,
                                                 std::int64_t threads);

}  // namespace kformer::drivers
