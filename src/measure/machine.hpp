// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/scalar.hpp"

namespace kformer::measure {

/// What an execution space of this machine can do, measured on it by instructions and copies, and what the library's
/// matrix product does there.
struct MachineLimits {
  double fma_rate_f32 = 0;  ///< FLOP/s of multiply-adds in registers, on all threads, in float
  double fma_rate_f64 = 0;  ///< FLOP/s in double
  /// FLOP/s of pairs of bf16 products summed in float, in vectors or in tiles (AMX), whichever is faster; 0 where
  /// the host has no such instruction.
  double pair_rate_bf16 = 0;
  /// Operations/s of products of bytes summed in integers, two each; 0 where the host has no such instruction.
  double dot_rate_int8 = 0;
  double copy_bandwidth = 0;    ///< byte/s read and written by a copy that exceeds the caches
  double stream_bandwidth = 0;  ///< the same by non-temporal stores
  double update_bandwidth = 0;  ///< byte/s read and written by an update in place
  double read_bandwidth = 0;    ///< byte/s that are read
  double transfer_rate = 0;  ///< byte/s that `transfer` moves to host memory and back, one direction at a time
  double matmul_rate_f32 = 0;   ///< FLOP/s of a matrix product in float, by the library's best kernel: no limit
  double matmul_rate_f64 = 0;   ///< FLOP/s in double
  double matmul_rate_bf16 = 0;  ///< FLOP/s of 16-bit factors and results, summed in float
  double matmul_rate_f16 = 0;   ///< the same

  /// FLOP/s of a matrix product in a storage type.
  double matmul_rate(DType dtype) const;
};

/// Measures all of them on a space.
MachineLimits machine_limits(const std::string& space);

/// Three lines that describe them.
std::string describe(const std::string& space, const MachineLimits& limits);

/// What a case on a space cannot exceed.
struct CaseLimits {
  /// FLOP/s of its storage type: multiply-adds, or `pair_rate_bf16` where that is faster; on devices
  /// the matrix product where it is faster, by the best kernel, whatever is forced: of floats a sixth of that in bf16.
  double flop_rate = 0;
  /// byte/s of reads, updates or copies of as many bytes, whichever moves the most.
  double bandwidth = 0;
};

/// Measures both in at most a few tenths of a second. The clock frequency of a processor changes, and other
/// processes use the memory too: take samples right before and after the measurement that they judge.
/// \param bytes that the case moves; few of them stay in caches, which are faster than memory
CaseLimits case_limits(const std::string& space, DType dtype, double bytes);

/// The larger of each.
CaseLimits larger_of(const CaseLimits& a, const CaseLimits& b);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
MachineLimits machine_limits_on();
template <class Exec>
CaseLimits case_limits_on(DType dtype, double bytes);

}  // namespace kformer::measure
