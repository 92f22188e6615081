// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

namespace kformer::Testing {

/// Starts Kokkos for several suites of one program: it can be started only once. It ends with the process.
inline void start_kokkos_once() { static const Kokkos::ScopeGuard kokkos; }

}  // namespace kformer::Testing
