// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/arguments.hpp"

namespace kformer::Impl::host {

/// The kernels of bf16 on the tile registers of AMX. A thread that runs one configures its registers and
/// releases them.
const LinearKernels& amx_linear_kernels();

}  // namespace kformer::Impl::host
