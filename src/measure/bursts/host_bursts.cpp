// SPDX-License-Identifier: MIT
#include "measure/bursts/host_bursts.hpp"

namespace kformer::measure {

extern const HostBursts bursts_generic;
#ifdef KFORMER_BURSTS_X86
extern const HostBursts bursts_avx512_bf16, bursts_avx512_vnni, bursts_avx512, bursts_avx2;
#endif

const HostBursts& host_bursts() {
#ifdef KFORMER_BURSTS_X86
  if (__builtin_cpu_supports("avx512f")) {
    // Every processor with AVX512_BF16 has AVX512_VNNI.
    const bool vnni = __builtin_cpu_supports("avx512vnni");
    if (vnni && __builtin_cpu_supports("avx512bf16")) return bursts_avx512_bf16;
    if (vnni) return bursts_avx512_vnni;
    return bursts_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return bursts_avx2;
#endif
  return bursts_generic;
}

}  // namespace kformer::measure
