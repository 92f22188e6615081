// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kformer::measure {

/// Arithmetic of one thread in vector registers, many independent operations, nothing else: `run` works through
/// `iterations` rounds and returns a number that depends on all of them.
template <class T>
struct ArithmeticBurst {
  T (*run)(std::int64_t iterations, T factor) = nullptr;
  double flops_per_iteration = 0;
};

/// What this host's processor does at most, by the widest instructions that kernels use.
struct HostBursts {
  const char* instructions;     ///< "avx512f+vnni+bf16", "avx512f+vnni", "avx512f", "avx2+fma" or "generic"
  ArithmeticBurst<float> f32;   ///< multiply-adds
  ArithmeticBurst<double> f64;  ///< the same
  ArithmeticBurst<float> bf16;  ///< pairs of bf16 products, summed in float; without `run` where there are none
  ArithmeticBurst<std::int32_t> int8;                      ///< products of bytes, summed in integers; the same
  double (*read)(const double* from, std::int64_t count);  ///< returns the sum
  void (*update)(double* values, std::int64_t count);      ///< in place
  void (*stream)(const double* from, double* to, std::int64_t count);  ///< a copy by non-temporal stores

  template <class T>
  const ArithmeticBurst<T>& multiply_adds() const {
    if constexpr (sizeof(T) == sizeof(double))
      return f64;
    else
      return f32;
  }
};

/// Chosen at run time for this processor.
const HostBursts& host_bursts();

}  // namespace kformer::measure
