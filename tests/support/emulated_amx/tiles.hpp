// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "ops/linear/host/amx/configuration.hpp"

/// \file
/// The tile registers of AMX in plain C++, so that its kernels can be compared with the reference where no
/// processor has them. Each function is the instruction of its name in Intel's manual (Software Developer's
/// Manual, volume 2): its order of sums, its roundings, and its faults, which are std::logic_error here.
/// Every thread has its own registers.

namespace kformer::Testing::emulated_amx {

void ldtilecfg(const kformer::Impl::host::TileConfiguration& all);
void tilerelease();
void tilezero(int tile);
void tileloadd(int tile, const void* from, std::int64_t stride);
void tilestored(int tile, void* to, std::int64_t stride);
void tdpbf16ps(int sum, int left, int right);

/// Threads whose registers are configured now, and how often any were.
int threads_in_use();
std::int64_t configurations();

}  // namespace kformer::Testing::emulated_amx
