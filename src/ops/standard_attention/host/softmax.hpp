// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>

#include "ops/common/simd/largest.hpp"
#include "ops/common/simd/row_access.hpp"
#include "ops/standard_attention/host/arguments.hpp"

/// \file
/// A row of scores: softmax, and its gradient.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::ScoreRow;

template <class C>
KFORMER_SIMD_INLINE Vector<C> or_hidden(Vector<C> x, Whole) {
  return x;
}
/// −∞ in the lanes that `part` does not have.
template <class C>
KFORMER_SIMD_INLINE Vector<C> or_hidden(Vector<C> x, First part) {
  const IntegerVector<C> is_there = ramp<C>() < splat(static_cast<C>(part.count));
  return choose<C>(is_there, x, splat(-Infinity<C>::value));
}

/// Adds the mask, rounded to T, and returns the largest score; NaN is passed over.
template <class T, class C = Arithmetic<T>>
C masked_largest(T* scores, const T* mask, std::int64_t n) {
  const Vector<C> hidden = splat(-Infinity<C>::value);
  Vector<C> most = hidden;
  for_each_vector<C>(n, [&](std::int64_t j, auto part) __attribute__((always_inline)) {
    Vector<C> score = part.load(scores + j);
    if (mask) {
      // −∞ hides the key even if its score is NaN.
      const Vector<C> added = part.load(mask + j);
      score = choose<C>(added == hidden, hidden, rounded<T>(score + added));
      part.store(scores + j, score);
    }
    most = greater<C>(or_hidden<C>(score, part), most);
  });
  return largest_lane<C>(most);
}

template <class T>
void softmax(const ScoreRow& row) {
  using C = Arithmetic<T>;
  T* const all = static_cast<T*>(row.scores);
  const std::int64_t first = smaller(row.first, row.keys), end = larger(first, row.end);
  std::memset(all, 0, static_cast<std::size_t>(first) * sizeof(T));
  std::memset(all + end, 0, static_cast<std::size_t>(row.keys - end) * sizeof(T));
  T* const scores = all + first;
  const std::int64_t n = end - first;
  const Vector<C> hidden = splat(-Infinity<C>::value);
  const Vector<C> highest =
      splat(masked_largest(scores, row.mask ? static_cast<const T*>(row.mask) + first : nullptr, n));
  const auto exponential = [&](std::int64_t j, auto part) __attribute__((always_inline)) {
    const Vector<C> score = or_hidden<C>(part.load(scores + j), part);
    return choose<C>(score == hidden, Vector<C>{}, exp<C>(score - highest));
  };
  const C sum = sum_over<C>(n, exponential);
  const Vector<C> factor = splat(sum == 0 ? C(0) : C(1) / sum);
  for_each_vector<C>(n, [&](std::int64_t j, auto part) __attribute__((always_inline)) {
    part.store(scores + j, exponential(j, part) * factor);
  });
}

/// A probability of 0 hides whatever the key's gradient is, NaN included.
template <class T>
void score_gradient(const void* of_row, void* in_place, std::int64_t keys) {
  using C = Arithmetic<T>;
  const T* const probabilities = static_cast<const T*>(of_row);
  T* const gradient = static_cast<T*>(in_place);
  const auto times = [&](std::int64_t j, auto part, Vector<C> less) __attribute__((always_inline)) {
    const Vector<C> p = part.load(probabilities + j);
    return choose<C>(p == Vector<C>{}, Vector<C>{}, p * (part.load(gradient + j) - less));
  };
  const Vector<C> delta =
      splat(sum_over<C>(keys, [&](std::int64_t j, auto part)
                                  __attribute__((always_inline)) { return times(j, part, Vector<C>{}); }));
  for_each_vector<C>(keys, [&](std::int64_t j, auto part) __attribute__((always_inline)) {
    part.store(gradient + j, times(j, part, delta));
  });
}

template <class T>
bool are_finite(const void* numbers, std::int64_t n) {
  using C = Arithmetic<T>;
  const T* const x = static_cast<const T*>(numbers);
  return sum_over<C>(n, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
           const Vector<C> value = part.load(x + i);
           return value - value;
         }) == 0;
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
