// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kformer::drivers {

/// The least limit of the address space (`ulimit -v`) under which a program starts.
inline constexpr std::uint64_t least_address_space = 512u << 20;

/// Where the address space is limited, ends a program whose limit is below the least, and restarts others with
/// one thread of OpenBLAS. It runs before the constructors of shared libraries and uses system calls alone.
/// \param environment is that of the program, which `getenv` may not have yet
void start_in_address_space(int count, char** arguments, char** environment);

}  // namespace kformer::drivers
