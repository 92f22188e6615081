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

// Operands of an instruction whose accumulators are c[n][0 .. 3] for n below columns / 8.
// clang-format off
#define KFORMER_SUMS_4(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define KFORMER_SUMS_8(n) KFORMER_SUMS_4(n), KFORMER_SUMS_4(n + 1)
#define KFORMER_SUMS_16(n) KFORMER_SUMS_8(n), KFORMER_SUMS_8(n + 2)
#define KFORMER_SUMS_32(n) KFORMER_SUMS_16(n), KFORMER_SUMS_16(n + 4)
#define KFORMER_SUMS_40(n) KFORMER_SUMS_32(n), KFORMER_SUMS_8(n + 8)
#define KFORMER_SUMS_48(n) KFORMER_SUMS_32(n), KFORMER_SUMS_16(n + 8)
#define KFORMER_SUMS_64(n) KFORMER_SUMS_32(n), KFORMER_SUMS_32(n + 8)
#define KFORMER_SUMS_128(n) KFORMER_SUMS_64(n), KFORMER_SUMS_64(n + 16)
#define KFORMER_NAMES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KFORMER_NAMES_40 KFORMER_NAMES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39"
#define KFORMER_NAMES_48 KFORMER_NAMES_40 ", " \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define KFORMER_NAMES_64 KFORMER_NAMES_48 ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KFORMER_NAMES_128 KFORMER_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// clang-format on

// A statement for both types; `of` is the instruction for one of them.
#define KFORMER_OF_BOTH(of, ...)    \
  if constexpr (type == Half::bf16) \
    of("bf16", __VA_ARGS__);        \
  else                              \
    of("f16", __VA_ARGS__)

/// c (64 × columns) = a (64 × 16) · bᵀ (16 × columns), or += with `add`; rows of a and b are dense in shared
/// memory. Row 16w + r of c is row r of warp w's fragment, which is that of `multiply_add` for each 8 columns.
template <Half type, int columns>
KFORMER_DEVICE void multiply_shared(float (&c)[columns / 8][4], std::uint64_t a, std::uint64_t b, bool add) {
  static_assert(columns == 64 || columns == 80 || columns == 96 || columns == 128);
#define KFORMER_MULTIPLY_SHARED(half, n, sums, left, right, flag)                                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " flag                                                  \
               ", 0;\n"                                                                                  \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." half "." half " {" KFORMER_NAMES_##sums \
               "}, " left ", " right ", p, 1, 1, 0, 0;\n}\n"                                             \
               : KFORMER_SUMS_##sums(0)                                                                  \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
  if constexpr (columns == 64) {
    KFORMER_OF_BOTH(KFORMER_MULTIPLY_SHARED, 64, 32, "%32", "%33", "%34");
  } else if constexpr (columns == 80) {
    KFORMER_OF_BOTH(KFORMER_MULTIPLY_SHARED, 80, 40, "%40", "%41", "%42");
  } else if constexpr (columns == 96) {
    KFORMER_OF_BOTH(KFORMER_MULTIPLY_SHARED, 96, 48, "%48", "%49", "%50");
  } else {
    KFORMER_OF_BOTH(KFORMER_MULTIPLY_SHARED, 128, 64, "%64", "%65", "%66");
  }
#undef KFORMER_MULTIPLY_SHARED
}

/// c (64 × columns) += a (64 × 16) · b (16 × columns); a is the fragment of `multiply_add` in each warp, rows
/// of b are dense in shared memory.
template <Half type, int columns>
KFORMER_DEVICE void multiply_registers(float (&c)[columns / 8][4], const std::uint32_t (&a)[4],
                                       std::uint64_t b) {
  static_assert(columns == 64 || columns == 96 || columns == 128 || columns == 256);
#define KFORMER_MULTIPLY_REGISTERS(half, n, sums, a0, a1, a2, a3, descriptor)                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." half "." half " {" KFORMER_NAMES_##sums \
               "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " descriptor ", 1, 1, 1, 1;\n"                      \
               : KFORMER_SUMS_##sums(0)                                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (columns == 64) {
    KFORMER_OF_BOTH(KFORMER_MULTIPLY_REGISTERS, 64, 32, "%32", "%33", "%34", "%35", "%36");
  } else if constexpr (columns == 96) {
    KFORMER_OF_BOTH(KFORMER_MULTIPLY_REGISTERS, 96, 48, "%48", "%49", "%50", "%51", "%52");
  } else if constexpr (columns == 128) {
    KFORMER_OF_BOTH(KFORMER_MULTIPLY_REGISTERS, 128, 64, "%64", "%65", "%66", "%67", "%68");
  } else {
    KFORMER_OF_BOTH(KFORMER_MULTIPLY_REGISTERS, 256, 128, "%128", "%129", "%130", "%131", "%132");
  }
#undef KFORMER_MULTIPLY_REGISTERS
}

#undef KFORMER_OF_BOTH
#undef KFORMER_SUMS_4
#undef KFORMER_SUMS_8
#undef KFORMER_SUMS_16
#undef KFORMER_SUMS_32
#undef KFORMER_SUMS_40
#undef KFORMER_SUMS_48
#undef KFORMER_SUMS_64
#undef KFORMER_SUMS_128
#undef KFORMER_NAMES_32
#undef KFORMER_NAMES_40
#undef KFORMER_NAMES_48
#undef KFORMER_NAMES_64
#undef KFORMER_NAMES_128

}  // namespace kformer::Impl::cuda
