// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kformer::measure {

/// Multiply-adds of one thread in vector registers, many independent ones, nothing else: `run` works through
/// `iterations` rounds and returns a number that depends on all of them.
template <class T>
struct FmaBurst {
  T (*run)(std::int64_t iterations, T factor);
  double flops_per_iteration;
};

/// The widest multiply-adds of this host's processor.
struct HostFma {
  const char* instructions;  ///< "avx512f", "avx2+fma" or "generic"
  FmaBurst<float> f32;
  FmaBurst<double> f64;

  template <class T>
  const FmaBurst<T>& burst() const {
    if constexpr (sizeof(T) == sizeof(double))
      return f64;
    else
      return f32;
  }
};

/// Chosen at run time for this processor.
const HostFma& host_fma();

}  // namespace kformer::measure
