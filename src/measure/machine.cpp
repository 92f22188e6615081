// SPDX-License-Identifier: MIT
#include "measure/machine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "measure/bursts/tile_burst.hpp"
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

CaseLimits case_limits(const std::string& space, DType dtype, double bytes) {
  return on_space(space,
                  [&]<class Exec>(std::type_identity<Exec>) { return case_limits_on<Exec>(dtype, bytes); });
}

CaseLimits larger_of(const CaseLimits& a, const CaseLimits& b) {
  return {std::max(a.flop_rate, b.flop_rate), std::max(a.bandwidth, b.bandwidth)};
}

std::string describe(const std::string& space, const MachineLimits& limits) {
  const auto giga = [](double value) { return value * 1e-9; };
  std::string text = fmt::format("{}: multiply-adds {:.1f} GFLOP/s f32, {:.1f} f64", space,
                                 giga(limits.fma_rate_f32), giga(limits.fma_rate_f64));
  if (limits.pair_rate_bf16 > 0)
    text += fmt::format("; bf16 pairs {:.1f} GFLOP/s", giga(limits.pair_rate_bf16));
  if (limits.dot_rate_int8 > 0) text += fmt::format("; bytes {:.1f} Gop/s", giga(limits.dot_rate_int8));
  return text +
         fmt::format(
             "\n{}: read {:.1f} GB/s, update {:.1f}, copy {:.1f}, non-temporal copy {:.1f} (host: {})\n"
             "{}: matrix product of the library {:.1f} GFLOP/s f32, {:.1f} f64, {:.1f} bf16, {:.1f} f16\n",
             space, giga(limits.read_bandwidth), giga(limits.update_bandwidth), giga(limits.copy_bandwidth),
             giga(limits.stream_bandwidth), burst_instructions(), space, giga(limits.matmul_rate_f32),
             giga(limits.matmul_rate_f64), giga(limits.matmul_rate_bf16), giga(limits.matmul_rate_f16));
}

}  // namespace kformer::measure
