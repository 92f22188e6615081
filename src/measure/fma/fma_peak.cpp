// SPDX-License-Identifier: MIT
#include "measure/fma/fma_peak.hpp"

namespace kformer::measure {

extern const HostFma fma_generic;
#ifdef KFORMER_FMA_X86
extern const HostFma fma_avx512, fma_avx2;
#endif

const HostFma& host_fma() {
#ifdef KFORMER_FMA_X86
  if (__builtin_cpu_supports("avx512f")) return fma_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return fma_avx2;
#endif
  return fma_generic;
}

}  // namespace kformer::measure
