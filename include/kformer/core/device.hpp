// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace kformer {

/// The reason why Kokkos cannot start: one sentence if it was built for GPUs and this machine has none that it
/// can use, otherwise empty. Call it before `Kokkos::initialize`, which aborts in that case.
std::string missing_device();

}  // namespace kformer
