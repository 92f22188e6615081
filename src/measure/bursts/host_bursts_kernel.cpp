// SPDX-License-Identifier: MIT
// Compiled once per instruction set, with its flags; KFORMER_BURSTS_NAME and KFORMER_BURSTS_BYTES say which. The flags of
// the whole build may allow more (-march=native), so that the bytes decide what a file uses. It includes nothing that
// defines a function for the linker: it might take that one for the whole program.
#include "measure/bursts/host_bursts.hpp"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace kformer::measure {

namespace {

// Enough independent sums to hide the latency of the multiply-add (two a cycle, five cycles), and few enough to
// stay in sixteen registers.
constexpr int sums = 12;

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(KFORMER_BURSTS_BYTES)));
};
template <class T>
constexpr int lanes = KFORMER_BURSTS_BYTES / sizeof(T);

template <class T>
T total_of(const typename Vector<T>::type* sum, int count) {
  typename Vector<T>::type all{};
  for (int i = 0; i < count; ++i) all += sum[i];
  T total = 0;
  for (int i = 0; i < lanes<T>; ++i) total += all[i];
  return total;
}

// With factor ½ every sum tends to 1: neither subnormal nor infinite numbers slow it down.
template <class T>
T multiply_adds(std::int64_t iterations, T factor) {
  using V = typename Vector<T>::type;
  V sum[sums], by = V{} + factor;
  for (int i = 0; i < sums; ++i) sum[i] = V{} + static_cast<T>(i);
  for (std::int64_t n = 0; n < iterations; ++n)
    for (int i = 0; i < sums; ++i) sum[i] = sum[i] * by + by;
  return total_of<T>(sum, sums);
}

template <class T>
constexpr double flops = 2.0 * double(sums * lanes<T>);

#if KFORMER_BURSTS_BYTES == 64 && defined(__AVX512BF16__)
float bf16_pairs(std::int64_t iterations, float factor) {
  const __m512bh by = _mm512_cvtne2ps_pbh(_mm512_set1_ps(factor), _mm512_set1_ps(factor));
  __m512 sum[sums];
  for (int i = 0; i < sums; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t n = 0; n < iterations; ++n)
    for (int i = 0; i < sums; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], by, by);
  float total = 0;
  for (int i = 0; i < sums; ++i) total += _mm512_cvtss_f32(sum[i]);
  return total;
}
constexpr ArithmeticBurst<float> bf16_burst{bf16_pairs, 2 * flops<float>};
#else
constexpr ArithmeticBurst<float> bf16_burst{};
#endif

// What the kernels of quantised weights are made of. Each iteration depends on the one before, so that nothing is
// computed only once.
#if KFORMER_BURSTS_BYTES == 64 && defined(__AVX512VNNI__)
std::int32_t byte_products(std::int64_t iterations, std::int32_t factors) {
  const __m512i by = _mm512_set1_epi32(factors);
  __m512i sum[sums];
  for (int i = 0; i < sums; ++i) sum[i] = _mm512_set1_epi32(i);
  for (std::int64_t n = 0; n < iterations; ++n)
    for (int i = 0; i < sums; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], by, by);
  for (int i = 1; i < sums; ++i) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
  return _mm512_reduce_add_epi32(sum[0]);
}
constexpr ArithmeticBurst<std::int32_t> int8_burst{byte_products, 2.0 * sums * 64};
#elif KFORMER_BURSTS_BYTES >= 32 && defined(__AVX2__)
constexpr int byte_sums = 10;  // products take registers too

std::int32_t byte_products(std::int64_t iterations, std::int32_t factors) {
  const __m256i by = _mm256_set1_epi32(factors);
  __m256i sum[byte_sums];
  for (int i = 0; i < byte_sums; ++i) sum[i] = _mm256_set1_epi32(i);
  for (std::int64_t n = 0; n < iterations; ++n)
    for (int i = 0; i < byte_sums; ++i) sum[i] = _mm256_add_epi16(_mm256_maddubs_epi16(sum[i], by), by);
  for (int i = 1; i < byte_sums; ++i) sum[0] = _mm256_add_epi16(sum[0], sum[i]);
  return _mm256_extract_epi32(sum[0], 0);
}
constexpr ArithmeticBurst<std::int32_t> int8_burst{byte_products, 2.0 * byte_sums * 32};
#else
constexpr ArithmeticBurst<std::int32_t> int8_burst{};
#endif

using Doubles = Vector<double>::type;
constexpr std::int64_t unrolled = 8;  // independent vectors
constexpr std::int64_t step = unrolled * lanes<double>;

double read(const double* from, std::int64_t count) {
  Doubles sum[unrolled]{};
  for (std::int64_t i = 0; i + step <= count; i += step)
    for (std::int64_t j = 0; j < unrolled; ++j) {
      Doubles values;
      __builtin_memcpy(&values, from + i + j * lanes<double>, sizeof(values));
      sum[j] += values;
    }
  return total_of<double>(sum, unrolled);
}

void update(double* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = values[i] * 0.5 + 0.5;
}

#if KFORMER_BURSTS_BYTES == 64
void store_past_caches(double* to, Doubles values) { _mm512_stream_pd(to, __m512d(values)); }
#elif KFORMER_BURSTS_BYTES == 32
void store_past_caches(double* to, Doubles values) { _mm256_stream_pd(to, __m256d(values)); }
#elif defined(__SSE2__)
void store_past_caches(double* to, Doubles values) { _mm_stream_pd(to, __m128d(values)); }
#else
void store_past_caches(double* to, Doubles values) { __builtin_memcpy(to, &values, sizeof(values)); }
#endif

// `to` is aligned to the vectors.
void stream(const double* from, double* to, std::int64_t count) {
  for (std::int64_t i = 0; i + lanes<double> <= count; i += lanes<double>) {
    Doubles values;
    __builtin_memcpy(&values, from + i, sizeof(values));
    store_past_caches(to + i, values);
  }
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace

extern const HostBursts KFORMER_BURSTS_NAME;
const HostBursts KFORMER_BURSTS_NAME{KFORMER_BURSTS_INSTRUCTIONS,
                                     {multiply_adds<float>, flops<float>},
                                     {multiply_adds<double>, flops<double>},
                                     bf16_burst,
                                     int8_burst,
                                     read,
                                     update,
                                     stream};

}  // namespace kformer::measure
