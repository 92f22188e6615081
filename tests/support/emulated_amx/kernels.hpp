// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/arguments.hpp"

/// \file
/// The kernels of `linear` for AMX, compiled for emulated tiles. Everything but the instructions of tiles
/// runs as it does on a processor, with the vectors of an instruction set.

namespace kformer::Testing::emulated_amx {

/// For generic, avx2 and avx512.
template <kformer::Impl::host::Isa isa>
const kformer::Impl::host::LinearKernels& linear_kernels();

}  // namespace kformer::Testing::emulated_amx
