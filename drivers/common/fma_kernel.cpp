// SPDX-License-Identifier: MIT
#include "common/fma_kernel.hpp"

namespace kformer::drivers {

namespace fma_baseline {
extern const FmaKernel kernel;
}
#ifdef KFORMER_FMA_X86
namespace fma_avx2 {
extern const FmaKernel kernel;
}
namespace fma_avx512 {
extern const FmaKernel kernel;
}
#endif

const FmaKernel& best_fma_kernel() {
#ifdef KFORMER_FMA_X86
  if (__builtin_cpu_supports("avx512f")) return fma_avx512::kernel;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return fma_avx2::kernel;
#endif
  return fma_baseline::kernel;
}

}  // namespace kformer::drivers
