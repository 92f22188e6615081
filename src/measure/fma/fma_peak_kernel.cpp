// SPDX-License-Identifier: MIT
// Compiled once per instruction set, with its flags; KFORMER_FMA_NAME and KFORMER_FMA_BYTES say which. It
// includes nothing that defines a function: the linker might take that one for the whole program.
#include "measure/fma/fma_peak.hpp"

namespace kformer::measure {

namespace {

// Enough independent sums to hide the latency of the multiply-add (two a cycle, five cycles), and few enough to
// stay in sixteen registers.
constexpr int sums = 12;

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(KFORMER_FMA_BYTES)));
};

// With factor ½ every sum tends to 1: neither subnormal nor infinite numbers slow it down.
template <class T>
T burst(std::int64_t iterations, T factor) {
  using V = typename Vector<T>::type;
  V sum[sums], by = V{} + factor;
  for (int i = 0; i < sums; ++i) sum[i] = V{} + static_cast<T>(i);
  for (std::int64_t n = 0; n < iterations; ++n)
    for (int i = 0; i < sums; ++i) sum[i] = sum[i] * by + by;
  V all{};
  for (int i = 0; i < sums; ++i) all += sum[i];
  T total = 0;
  for (int i = 0; i < int(KFORMER_FMA_BYTES / sizeof(T)); ++i) total += all[i];
  return total;
}

template <class T>
constexpr double flops = 2.0 * double(sums * (KFORMER_FMA_BYTES / sizeof(T)));

}  // namespace

extern const HostFma KFORMER_FMA_NAME;
const HostFma KFORMER_FMA_NAME{
    KFORMER_FMA_INSTRUCTIONS, {burst<float>, flops<float>}, {burst<double>, flops<double>}};

}  // namespace kformer::measure
