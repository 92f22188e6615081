// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/instructions.hpp"

/// \file
/// Products of a warpgroup in PTX (wgmma, sm_90a). They are in flight until they are waited for: their
/// accumulators, the registers of a, and what they read of shared memory have to be left alone.

namespace kformer::Impl::cuda {

/// Orders what was written to registers before the products that use them.
KFORMER_DEVICE void fence_products() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
KFORMER_DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
/// Waits for all but the last `left` groups.
template <int left>
KFORMER_DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(left) : "memory");
}

// Operands of an instruction whose accumulators are c[n][0 .. 3] for n below 8 or 16.
// clang-format off
#define KFORMER_ACCUMULATORS_4(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define KFORMER_ACCUMULATORS_16(n)                                                               \
  KFORMER_ACCUMULATORS_4(n), KFORMER_ACCUMULATORS_4(n + 1), KFORMER_ACCUMULATORS_4(n + 2), \
      KFORMER_ACCUMULATORS_4(n + 3)
#define KFORMER_ACCUMULATORS_32 KFORMER_ACCUMULATORS_16(0), KFORMER_ACCUMULATORS_16(4)
#define KFORMER_ACCUMULATORS_64 KFORMER_ACCUMULATORS_32, KFORMER_ACCUMULATORS_16(8), KFORMER_ACCUMULATORS_16(12)
#define KFORMER_NAMES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KFORMER_NAMES_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// clang-format on

/// c (64 × columns) = a (64 × 16) · bᵀ (16 × columns), or += with `add`; rows of a and b are dense in shared
/// memory. Row 16w + r of c is row r of warp w's fragment, which is that of `multiply_add` for each 8 columns.
template <Half type, int columns>
KFORMER_DEVICE void multiply_shared(float (&c)[columns / 8][4], std::uint64_t a, std::uint64_t b, bool add) {
  static_assert(columns == 64 || columns == 128);
#define KFORMER_MULTIPLY_SHARED(half, n, sums, left, right, flag)                                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " flag                                                  \
               ", 0;\n"                                                                                  \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." half "." half " {" KFORMER_NAMES_##sums \
               "}, " left ", " right ", p, 1, 1, 0, 0;\n}\n"                                             \
               : KFORMER_ACCUMULATORS_##sums                                                             \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
  if constexpr (type == Half::bf16 && columns == 64)
    KFORMER_MULTIPLY_SHARED("bf16", 64, 32, "%32", "%33", "%34");
  else if constexpr (type == Half::f16 && columns == 64)
    KFORMER_MULTIPLY_SHARED("f16", 64, 32, "%32", "%33", "%34");
  else if constexpr (type == Half::bf16)
    KFORMER_MULTIPLY_SHARED("bf16", 128, 64, "%64", "%65", "%66");
  else
    KFORMER_MULTIPLY_SHARED("f16", 128, 64, "%64", "%65", "%66");
#undef KFORMER_MULTIPLY_SHARED
}

/// c (64 × columns) += a (64 × 16) · b (16 × columns); a is the fragment of `multiply_add` in each warp, rows
/// of b are dense in shared memory.
template <Half type, int columns>
KFORMER_DEVICE void multiply_registers(float (&c)[columns / 8][4], const std::uint32_t (&a)[4],
                                       std::uint64_t b) {
  static_assert(columns == 64 || columns == 128);
#define KFORMER_MULTIPLY_REGISTERS(half, n, sums, a0, a1, a2, a3, descriptor)                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." half "." half " {" KFORMER_NAMES_##sums \
               "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " descriptor ", 1, 1, 1, 1;\n"                      \
               : KFORMER_ACCUMULATORS_##sums                                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (type == Half::bf16 && columns == 64)
    KFORMER_MULTIPLY_REGISTERS("bf16", 64, 32, "%32", "%33", "%34", "%35", "%36");
  else if constexpr (type == Half::f16 && columns == 64)
    KFORMER_MULTIPLY_REGISTERS("f16", 64, 32, "%32", "%33", "%34", "%35", "%36");
  else if constexpr (type == Half::bf16)
    KFORMER_MULTIPLY_REGISTERS("bf16", 128, 64, "%64", "%65", "%66", "%67", "%68");
  else
    KFORMER_MULTIPLY_REGISTERS("f16", 128, 64, "%64", "%65", "%66", "%67", "%68");
#undef KFORMER_MULTIPLY_REGISTERS
}

#undef KFORMER_ACCUMULATORS_4
#undef KFORMER_ACCUMULATORS_16
#undef KFORMER_ACCUMULATORS_32
#undef KFORMER_ACCUMULATORS_64
#undef KFORMER_NAMES_32
#undef KFORMER_NAMES_64

}  // namespace kformer::Impl::cuda
