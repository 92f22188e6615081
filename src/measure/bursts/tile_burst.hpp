// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "measure/bursts/host_bursts.hpp"

namespace kformer::measure {

/// Pairs of bf16 products on the tile registers of AMX, summed in float; without `run` where this process may
/// not use them (`amx_refusal`).
const ArithmeticBurst<float>& tile_burst();

/// What all bursts of this host run: `host_bursts().instructions`, with "+amx" where there is a `tile_burst`.
std::string burst_instructions();

}  // namespace kformer::measure
