// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kformer::drivers {

/// Fused multiply-adds between registers, as many at once as keep the pipelines full: nothing this processor
/// does in that precision is faster. Compiled once per instruction set, free of Kokkos.
struct FmaKernel {
  const char* isa;  ///< what it was compiled for: "avx512f", "avx2+fma", "baseline"
  /// Runs the loop on the calling thread. The result is of no use, but keeps the loop alive.
  float (*run_f32)(std::int64_t rounds);
  double (*run_f64)(std::int64_t rounds);  ///< the same in double
  double flops_per_round_f32;              ///< floating-point operations in one round, two per multiply-add
  double flops_per_round_f64;              ///< the same in double
};

/// The widest one this processor runs.
const FmaKernel& best_fma_kernel();

}  // namespace kformer::drivers
