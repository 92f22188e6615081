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
/// Products of two numbers that `tdpbf16ps` has added to sums.
std::int64_t products();

/// As `TileRegisters` of ops/linear/host/amx/instructions.hpp. Inline, because kernels of every instruction
/// set use it.
struct EmulatedTiles {
  [[gnu::always_inline]] static void configure(const kformer::Impl::host::TileConfiguration& all) {
    ldtilecfg(all);
  }
  [[gnu::always_inline]] static void release() { tilerelease(); }
  template <int tile>
  [[gnu::always_inline]] static void zero() {
    tilezero(tile);
  }
  template <int tile>
  [[gnu::always_inline]] static void load(const void* from, std::int64_t stride) {
    tileloadd(tile, from, stride);
  }
  template <int tile>
  [[gnu::always_inline]] static void store(void* to, std::int64_t stride) {
    tilestored(tile, to, stride);
  }
  template <int sum, int left, int right>
  [[gnu::always_inline]] static void multiply_bf16() {
    tdpbf16ps(sum, left, right);
  }
};

}  // namespace kformer::Testing::emulated_amx
