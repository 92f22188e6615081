// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "ops/common/simd/scaled_exp.hpp"
#include "ops/cross_entropy/host/logits.hpp"

/// \file
/// One pass over memory; the gradient may be written over the logits.

namespace kformer::Impl::simd::KFORMER_ISA {

/// The gradient of one row: `(e^(z − lse)·pull − share)·dz/dx·dloss`.
template <class T, class Logits>
struct LogitGradient {
  using C = Arithmetic<T>;

  Logits logits;
  C lse, dloss;
  std::conditional_t<sizeof(T) == 2, FastScaledExp<C>, ScaledExp<C>> pulled_exp;

  KFORMER_SIMD_INLINE LogitGradient(const CrossEntropyArguments& a, C lse, C dloss)
      : logits(a.softcap), lse(lse), dloss(dloss), pulled_exp(1 + 2 * C(a.z_loss) * lse) {}
  KFORMER_SIMD_INLINE Vector<C> operator()(Vector<C> x, C share) const {
    const auto logit = logits(x);
    return logit.chain(pulled_exp.plus(splat(-share), logit.z - lse) * dloss);
  }
};

template <class T, class Logits>
__attribute__((noinline)) void cross_entropy_backward_row(const CrossEntropyArguments& a, std::int64_t row) {
  using C = Arithmetic<T>;
  constexpr int W = width<C>;
  const T* x = static_cast<const T*>(a.logits) + row * a.logits_stride;
  T* dx = static_cast<T*>(a.dlogits) + row * a.dlogits_stride;
  const std::int64_t target = a.targets[row];
  if (target == a.ignore_index) {
    std::memset(dx, 0, a.vocabulary * sizeof(T));
    return;
  }
  const bool valid = target >= 0 && target < a.vocabulary;
  const C lse = static_cast<const C*>(a.lse)[row];
  const C dloss = valid ? static_cast<const C*>(a.dloss)[row] : C(__builtin_nan(""));
  const LogitGradient<T, Logits> gradient(a, lse, dloss);
  const double share = a.label_smoothing / static_cast<double>(a.vocabulary);
  // The target's gradient is made of its logit before that may be written over, and stored last.
  T own[W] = {};
  if (valid) store_stored(own, gradient(load_part(x + target, 1), C(1 - a.label_smoothing + share)));
  std::int64_t v = 0;
  for (; v + W <= a.vocabulary; v += W) {
    __builtin_prefetch(x + v + 4096 / sizeof(T), 0, 2);
    store_stored(dx + v, gradient(load_stored(x + v), C(share)));
  }
  if (v < a.vocabulary) {
    const int rest = static_cast<int>(a.vocabulary - v);
    store_part(dx + v, gradient(load_part(x + v, rest), C(share)), rest);
  }
  if (valid) dx[target] = own[0];
}

template <class T>
void cross_entropy_backward(const CrossEntropyArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Arithmetic<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    if (a.softcap > 0)
      cross_entropy_backward_row<T, CappedLogits<C>>(a, row);
    else
      cross_entropy_backward_row<T, PlainLogits<C>>(a, row);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
