// SPDX-License-Identifier: MIT
#include "measure/machine.hpp"

#include <fmt/format.h>

#include "measure/fma/fma_peak.hpp"
#include "measure/spaces.hpp"

namespace kformer::measure {

double MachineLimits::matmul_rate(DType dtype) const {
  switch (dtype) {
    case DType::f64:
      return matmul_rate_f64;
    case DType::bf16:
      return matmul_rate_bf16;
    case DType::f16:
      return matmul_rate_f16;
    default:
      return matmul_rate_f32;
  }
}

MachineLimits machine_limits(const std::string& space) {
  return on_space(space, []<class Exec>(std::type_identity<Exec>) { return machine_limits_on<Exec>(); });
}

std::string describe(const std::string& space, const MachineLimits& limits) {
  return fmt::format(
      "{}: matrix product {:.1f} GFLOP/s f32, {:.1f} f64, {:.1f} bf16, {:.1f} f16; copy {:.1f} GB/s\n"
      "{}: multiply-adds {:.1f} GFLOP/s f32, {:.1f} GFLOP/s f64 (host instructions: {})\n",
      space, limits.matmul_rate_f32 * 1e-9, limits.matmul_rate_f64 * 1e-9, limits.matmul_rate_bf16 * 1e-9,
      limits.matmul_rate_f16 * 1e-9, limits.copy_bandwidth * 1e-9, space, limits.fma_rate_f32 * 1e-9,
      limits.fma_rate_f64 * 1e-9, host_fma().instructions);
}

}  // namespace kformer::measure
