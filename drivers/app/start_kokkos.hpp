// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kformer::drivers {

/// Call it before writing to disk, and before `start_kokkos`.
/// \throws NotSupported if Kokkos was built for a device that this machine lacks
void require_device();

/// What `main` has as `argv`: a pointer to each of the arguments, and a null.
std::vector<char*> argument_pointers(std::vector<std::string>& arguments);

/// Starts Kokkos, which ends with the lifetime of the result.
/// \param program   as the command line has it
/// \param arguments of Kokkos
/// \param threads   host threads; 0: Kokkos default
/// \throws NotSupported if KFORMER_KERNEL names what is not there, or the number of threads is out of range
std::unique_ptr<Kokkos::ScopeGuard> start_kokkos(const std::string& program, std::vector<std::string> arguments,
                                                 std::int64_t threads);

}  // namespace kformer::drivers
