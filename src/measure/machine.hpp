// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/scalar.hpp"

namespace kformer::measure {

/// What an execution space of this machine can do, measured on it: the limits that results are compared with.
struct MachineLimits {
  double matmul_rate_f32;   ///< FLOP/s of a matrix product in float, by the library's best kernel
  double matmul_rate_f64;   ///< FLOP/s in double
  double matmul_rate_bf16;  ///< FLOP/s of 16-bit factors and results, summed in float
  double matmul_rate_f16;   ///< the same
  double fma_rate_f32;      ///< FLOP/s of multiply-adds in registers, on all threads, in float
  double fma_rate_f64;      ///< FLOP/s in double
  double copy_bandwidth;    ///< byte/s read and written by a copy that exceeds the caches

  /// FLOP/s of a matrix product in a storage type.
  double matmul_rate(DType dtype) const;
};

/// Measures the limits of a space.
MachineLimits machine_limits(const std::string& space);

/// Two lines that describe them.
std::string describe(const std::string& space, const MachineLimits& limits);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
MachineLimits machine_limits_on();

}  // namespace kformer::measure
