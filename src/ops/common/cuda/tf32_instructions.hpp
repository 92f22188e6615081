// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/instructions.hpp"

/// \file
/// Products of floats with 11 digits (TF32) on tensor cores, compute capability 8.0 and later.

namespace kformer::Impl::cuda {

/// c (16 × 8) += a (16 × 8) · b (8 × 8). The 13 lowest bits of a and b are 0, or ignored.
#if defined(__CUDACC__)
KFORMER_DEVICE void multiply_add_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
void multiply_add_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
#endif

}  // namespace kformer::Impl::cuda
