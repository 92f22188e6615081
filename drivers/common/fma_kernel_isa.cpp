// SPDX-License-Identifier: MIT
// Compiled once per instruction set. The build names it, in KFORMER_FMA_ISA, and a namespace of its own, in
// KFORMER_FMA_NAMESPACE: code for one processor must never be linked in place of code for another.
#include "common/fma_kernel.hpp"

namespace kformer::drivers::KFORMER_FMA_NAMESPACE {

namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

// Latency times throughput is 8 to 16 instructions; sums, factor and term must fit the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int sums = 16;
#else
constexpr int sums = 12;
#endif

template <class T>
T run(std::int64_t rounds) {
  typedef T Vector __attribute__((vector_size(vector_bytes)));
  const Vector factor = Vector{} + T(0.5), term = Vector{} + T(0.5);
  Vector sum[sums];
  // Different starts, unknown to the compiler, or it would merge the sums.
#pragma GCC unroll 16
  for (int i = 0; i < sums; ++i) sum[i] = Vector{} + static_cast<T>(rounds + i);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < sums; ++i) sum[i] = sum[i] * factor + term;
  }
  Vector total = sum[0];
#pragma GCC unroll 16
  for (int i = 1; i < sums; ++i) total += sum[i];
  return total[0];
}

template <class T>
constexpr double flops_per_round = 2.0 * sums * vector_bytes / sizeof(T);

}  // namespace

extern const FmaKernel kernel;
const FmaKernel kernel{KFORMER_FMA_ISA, run<float>, run<double>, flops_per_round<float>,
                       flops_per_round<double>};

}  // namespace kformer::drivers::KFORMER_FMA_NAMESPACE
