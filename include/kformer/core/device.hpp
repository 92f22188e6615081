// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace kformer {

/// Why Kokkos cannot start here: one sentence if it was built for GPUs and this machine has none that it can
/// use, else empty. To be asked before `Kokkos::initialize`, which aborts in that case.
std::string missing_device();

}  // namespace kformer
