// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/vector.hpp"
#include "ops/linear/host/amx/configuration.hpp"

/// \file
/// The instructions of AMX. Not by the intrinsics of GCC: those take no number of a register that a template
/// computed, and do not tell the compiler that a load reads memory.

namespace kformer::Impl::simd::KFORMER_ISA {

/// The tile registers of the thread that calls; see `AmxTile` for what a machine of tiles must have.
struct TileRegisters {
  KFORMER_SIMD_INLINE static void configure(const host::TileConfiguration& all) {
    __asm__ volatile("ldtilecfg %0" ::"m"(all));
  }
  KFORMER_SIMD_INLINE static void release() { __asm__ volatile("tilerelease"); }

  template <int tile>
  KFORMER_SIMD_INLINE static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  /// Rows that are `stride` bytes apart.
  template <int tile>
  KFORMER_SIMD_INLINE static void load(const void* from, std::int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  KFORMER_SIMD_INLINE static void store(void* to, std::int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  /// sum += left · right, pairs of bf16: a pair of `left` is two neighbours of a row, of `right` of a column.
  template <int sum, int left, int right>
  KFORMER_SIMD_INLINE static void multiply_bf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
  }
};

}  // namespace kformer::Impl::simd::KFORMER_ISA
