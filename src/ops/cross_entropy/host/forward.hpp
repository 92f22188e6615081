// SPDX-License-Identifier: MIT
#pragma once

#include "ops/cross_entropy/host/logits.hpp"

/// \file
/// One pass over memory: a block of a row is read once, as numbers in the first-level cache it gives its
/// maximum and its sum, and what was summed before is scaled to the maximum so far.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Blocks are whole numbers of this many vectors, each of which has sums of its own.
inline constexpr int logit_sums = 4;
template <class C>
inline constexpr int logit_block = 4096 / static_cast<int>(sizeof(C));

template <class C>
KFORMER_SIMD_INLINE C lane_maximum(Vector<C> x) {
  C most = x[0];
  for (int i = 1; i < width<C>; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

/// `Σ_v e^(z[v] − largest)` and `Σ_v (largest − z[v])` over the part of a row that was seen.
template <class C>
struct LogitSums {
  C largest = -Infinity<C>::largest, below = 0;
  Vector<C> sums[logit_sums] = {};
  std::int64_t count = 0;

  KFORMER_SIMD_INLINE void raise_to(C greatest) {
    if (!(greatest > largest)) return;
    const C scale = exp<C>(splat(largest - greatest))[0];
    for (Vector<C>& sum : sums) sum *= scale;
    if (count > 0) below += static_cast<C>(count) * (greatest - largest);
    largest = greatest;
  }

  /// The sum of exponentials. exp never gives 0, so a row of −∞ only has a tiny sum, and any other at least 1.
  KFORMER_SIMD_INLINE C total() const {
    C all = sum_of<C>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    return all < C(0.5) ? C(0) : all;
  }
};

/// Reads `n` logits, and −∞ up to a whole number of `logit_sums` vectors; returns the largest that is not NaN.
template <class T, class Logits, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE C read_logits(const T* from, int n, const Logits& logits, C* to) {
  constexpr int W = width<C>, step = logit_sums * W;
  Vector<C> most[logit_sums];
  for (Vector<C>& m : most) m = splat(-Infinity<C>::value);
  int i = 0;
  for (; i + step <= n; i += step) KFORMER_SIMD_UNROLL
  for (int k = 0; k < logit_sums; ++k) {
    const Vector<C> z = logits(load_stored(from + i + k * W)).z;
    store(to + i + k * W, z);
    most[k] = greater<C>(z, most[k]);
  }
  for (; i < n; i += step)
    for (int k = 0; k < logit_sums; ++k) {
      const int rest = static_cast<int>(larger(0, smaller(W, n - i - k * W)));
      const Vector<C> z = choose<C>(ramp<C>() < splat(static_cast<C>(rest)),
                                    logits(load_part(from + i + k * W, rest)).z, splat(-Infinity<C>::value));
      store(to + i + k * W, z);
      most[k] = greater<C>(z, most[k]);
    }
  return lane_maximum<C>(greater<C>(greater<C>(most[0], most[1]), greater<C>(most[2], most[3])));
}

/// Adds the exponentials of a block that lies in the cache, while the next one is on its way from `ahead`.
template <class C>
KFORMER_SIMD_INLINE void add_exponentials(const C* block, int n, const char* ahead, std::int64_t ahead_bytes,
                                          LogitSums<C>& sums) {
  constexpr int step = logit_sums * width<C>;
  const Vector<C> largest = splat(sums.largest);
  const std::int64_t bytes_per_step = ahead_bytes * step / logit_block<C>;
  for (int i = 0; i < n; i += step) {
    for (std::int64_t at = 0; at < bytes_per_step; at += 64) __builtin_prefetch(ahead + at);
    ahead += bytes_per_step;
    KFORMER_SIMD_UNROLL
    for (int k = 0; k < logit_sums; ++k) sums.sums[k] += exp<C>(load(block + i + k * width<C>) - largest);
  }
}

/// Adds `largest − z` of `n` logits.
template <class C>
__attribute__((noinline)) void add_below(const C* block, int n, LogitSums<C>& sums) {
  constexpr int W = width<C>;
  const Vector<C> largest = splat(sums.largest);
  Vector<C> below{};
  int i = 0;
  for (; i + W <= n; i += W) below += largest - load(block + i);
  sums.below += sum_of<C>(below);
  for (; i < n; ++i) sums.below += sums.largest - block[i];
}

template <class T, class Logits>
__attribute__((noinline)) void cross_entropy_forward_row(const CrossEntropyArguments& a, std::int64_t row) {
  using C = Arithmetic<T>;
  constexpr int block = logit_block<C>;
  const T* x = static_cast<const T*>(a.logits) + row * a.logits_stride;
  C &loss = static_cast<C*>(a.loss)[row], &lse = static_cast<C*>(a.lse)[row];
  const std::int64_t target = a.targets[row];
  if (target == a.ignore_index) {
    loss = lse = 0;
    return;
  }
  const Logits logits(a.softcap);
  LogitSums<C> sums;
  alignas(64) C z[block];
  for (std::int64_t v = 0; v < a.vocabulary; v += block) {
    const int n = static_cast<int>(smaller(block, a.vocabulary - v));
    sums.raise_to(read_logits(x + v, n, logits, z));
    add_exponentials(z, n, reinterpret_cast<const char*>(x + v + n), block * sizeof(T), sums);
    if (a.label_smoothing > 0) add_below(z, n, sums);
    sums.count += n;
  }
  const C log_sum = natural_log(sums.total());
  lse = sums.largest + log_sum;
  if (target < 0 || target >= a.vocabulary) {
    loss = __builtin_nan("");
    return;
  }
  // No term is negative: nothing cancels, however large the logits.
  const C smoothing = C(a.label_smoothing), own = logits(load_part(x + target, 1)).z[0];
  C total = log_sum + (1 - smoothing) * (sums.largest - own);
  if (smoothing > 0) total += smoothing * (sums.below / static_cast<C>(a.vocabulary));
  if (a.z_loss > 0) total += C(a.z_loss) * lse * lse;
  loss = total;
}

template <class T>
void cross_entropy_forward(const CrossEntropyArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Arithmetic<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    if (a.softcap > 0)
      cross_entropy_forward_row<T, CappedLogits<C>>(a, row);
    else
      cross_entropy_forward_row<T, PlainLogits<C>>(a, row);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
