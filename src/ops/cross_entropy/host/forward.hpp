// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "ops/common/simd/largest.hpp"
#include "ops/common/simd/scaled_exp.hpp"
#include "ops/cross_entropy/host/logits.hpp"

/// \file
/// One pass over memory: a block of a row is read once, from the first-level cache it gives its maximum and its
/// sum, and what was summed before is scaled to the maximum so far.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Elements of a block.
template <class T>
inline constexpr int logit_block = 8192 / static_cast<int>(sizeof(T));
/// Vectors that are summed independently.
inline constexpr int logit_sums = 4;

/// Logits up to this are summed as they are: neither a sum nor a term leaves the range of float.
inline constexpr float small_logit = 48;

/// `Σ_v e^(z[v] − shift)` and `Σ_v (largest − z[v])` over the part of a row that was seen. The shift is 0 while
/// all logits are small, then it is the largest.
template <class C>
struct LogitSums {
  C largest = -Infinity<C>::largest, below = 0;
  Vector<C> sums[logit_sums] = {};
  std::int64_t count = 0;
  bool is_shifted = false;

  KFORMER_SIMD_INLINE C shift() const { return is_shifted ? largest : C(0); }

  KFORMER_SIMD_INLINE void shift_to(C greatest) {
    const C before = largest, old_shift = shift();
    if (greatest > largest) largest = greatest;
    is_shifted = true;
    if (count == 0 || largest == old_shift) return;
    const C scale = FastScaledExp<C>(1).plus(Vector<C>{}, splat(old_shift - largest))[0];
    for (Vector<C>& sum : sums) sum *= scale;
    below += static_cast<C>(count) * (largest - before);
  }

  /// `Σ_v e^(z[v] − largest)`: at least 1, because what is divided by was added.
  KFORMER_SIMD_INLINE C total() const {
    const C sum = sum_of<C>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    return is_shifted ? sum : sum / FastScaledExp<C>(1).plus_small(Vector<C>{}, splat(largest))[0];
  }
};

/// `add(k, x)` for vectors of logits in no particular order, k < `logit_sums`, while the next block is on its
/// way to the first-level cache. Returns where the rest begins that fills no vector.
template <class T, class Add, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE int for_each_logits(const T* from, int n, Add add) {
  constexpr int W = width<C>, step = logit_sums * W;
  int i = 0;
  for (; i + step <= n; i += step) {
    for (int byte = 0; byte < step * static_cast<int>(sizeof(T)); byte += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(from + logit_block<T> + i) + byte);
    KFORMER_SIMD_UNROLL
    for (int k = 0; k < logit_sums; k += 2) {
      const Two<T> two = load_two(from + i + k * W);
      add(k, two.x[0]);
      add(k + 1, two.x[1]);
    }
  }
  for (; i + W <= n; i += W) add(0, load_stored(from + i));
  return i;
}

/// Adds `n` logits, none above the largest.
template <bool with_below, class T, class Logits, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void add_shifted(const T* from, int n, const Logits& logits, LogitSums<C>& all) {
  const FastScaledExp<C> exp(C(1));
  const Vector<C> largest = splat(all.largest);
  Vector<C> below[logit_sums] = {};
  const int i = for_each_logits(from, n, [&](int k, Vector<C> x) __attribute__((always_inline)) {
    const Vector<C> distance = logits(x).z - largest;
    all.sums[k] = exp.plus(all.sums[k], distance);
    if (with_below) below[k] -= distance;
  });
  if (i < n) {
    const IntegerVector<C> seen = ramp<C>() < splat(static_cast<C>(n - i));
    const Vector<C> distance = choose<C>(seen, logits(load_part(from + i, n - i)).z - largest, Vector<C>{});
    all.sums[1] += choose<C>(seen, exp.plus(Vector<C>{}, distance), Vector<C>{});
    if (with_below) below[1] -= distance;
  }
  if (with_below) all.below += sum_of<C>((below[0] + below[1]) + (below[2] + below[3]));
}

/// Adds `n` small logits that are not capped.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void add_small(const T* from, int n, LogitSums<C>& all) {
  const FastScaledExp<C> exp(C(1));
  const int i = for_each_logits(from, n, [&](int k, Vector<C> x) __attribute__((always_inline)) {
    all.sums[k] = exp.plus_small(all.sums[k], x);
  });
  if (i < n) {
    const IntegerVector<C> seen = ramp<C>() < splat(static_cast<C>(n - i));
    all.sums[1] += choose<C>(seen, exp.plus_small(Vector<C>{}, load_part(from + i, n - i)), Vector<C>{});
  }
}

/// Adds a block.
template <bool with_below, class T, class Logits, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void add_block(const T* from, int n, const Logits& logits, LogitSums<C>& all) {
  if constexpr (sizeof(T) == 2 && !with_below && std::is_same_v<Logits, PlainLogits<C>>) {
    if (!all.is_shifted) {
      const HalfRange<T> range(from, n, small_logit);
      if (range.within) {
        all.largest = larger_lanes<C>(splat(range.largest), splat(all.largest))[0];
        add_small(from, n, all);
        all.count += n;
        return;
      }
    }
  }
  // The cap keeps the order of logits.
  all.shift_to(logits(splat(largest_stored(from, n))).z[0]);
  add_shifted<with_below>(from, n, logits, all);
  all.count += n;
}

template <class T, class Logits>
__attribute__((noinline)) void cross_entropy_forward_row(const CrossEntropyArguments& a, std::int64_t row) {
  using C = Arithmetic<T>;
  const T* x = static_cast<const T*>(a.logits) + row * a.logits_stride;
  C &loss = static_cast<C*>(a.loss)[row], &lse = static_cast<C*>(a.lse)[row];
  const std::int64_t target = a.targets[row];
  if (target == a.ignore_index) {
    loss = lse = 0;
    return;
  }
  const Logits logits(a.softcap);
  LogitSums<C> sums;
  for (std::int64_t v = 0; v < a.vocabulary; v += logit_block<T>) {
    const int n = static_cast<int>(smaller(logit_block<T>, a.vocabulary - v));
    if (a.label_smoothing > 0)
      add_block<true>(x + v, n, logits, sums);
    else
      add_block<false>(x + v, n, logits, sums);
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
