// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "ops/common/host_tensor.hpp"

/// \file
/// The one tolerance of all tests. With `ref` the oracle on the rounded inputs and `naive` the textbook
/// algorithm with every array rounded to T,
///
///   max|out − ref| ≤ max(2·max|naive − ref|, ulp(max|ref|))   and
///   rms(out − ref) ≤ max(2·rms(naive − ref), ½ ulp(rms(ref))).
///
/// The ulps are those of the output's storage type: an output that is merely rounded is never wrong.

namespace kformer::Testing {

/// The oracle's arithmetic for kernels of storage type T.
template <class T>
using oracle_t = std::conditional_t<std::is_same_v<T, double>, long double, double>;

/// The spacing of numbers of storage type S at magnitude `x`.
template <class S>
long double ulp(long double x) {
  constexpr int digits = std::is_same_v<S, double>  ? 53
                         : std::is_same_v<S, float> ? 24
                         : std::is_same_v<S, f16>   ? 11
                                                    : 8;
  constexpr int lowest = std::is_same_v<S, double> ? -1022 : std::is_same_v<S, f16> ? -14 : -126;
  int exponent = 0;
  if (x > 0) std::frexp(x, &exponent);
  return std::ldexp(1.0L, std::max(exponent, lowest + 1) - digits);
}

/// The verdict and the text that explains it.
struct Comparison {
  bool ok;
  std::string report;
};

namespace Detail {
struct ErrorNorms {
  long double max = 0, rms = 0;
};

/// Equal infinities do not differ; a NaN on one side only differs infinitely.
inline long double difference(long double a, long double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const long double d = std::abs(a - b);
  return std::isnan(d) ? std::numeric_limits<long double>::infinity() : d;
}

template <class A, class B>
ErrorNorms error_norms(const std::vector<A>& a, const std::vector<B>& b) {
  ErrorNorms n;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double d = difference(a[i], b[i]);
    n.max = std::max(n.max, d);
    n.rms += d * d;
  }
  if (!a.empty()) n.rms = std::sqrt(n.rms / static_cast<long double>(a.size()));
  return n;
}
}  // namespace Detail

/// Judges `out`, stored as S, by the rule above.
template <class S, class Real, class Naive>
Comparison compare(const kformer::Impl::HostTensor<Real>& out, const kformer::Impl::HostTensor<Real>& ref,
                   const kformer::Impl::HostTensor<Naive>& naive) {
  const auto& o = out.values();
  const auto& r = ref.values();
  if (o.size() != r.size() || naive.values().size() != r.size()) return {false, "the sizes differ"};
  const auto error = Detail::error_norms(o, r);
  const auto allowed = Detail::error_norms(naive.values(), r);
  long double max_ref = 0, rms_ref = 0;
  std::size_t finite = 0;
  for (const Real v : r) {
    if (!std::isfinite(v)) continue;
    ++finite;
    max_ref = std::max<long double>(max_ref, std::abs(v));
    rms_ref += static_cast<long double>(v) * v;
  }
  if (finite) rms_ref = std::sqrt(rms_ref / static_cast<long double>(finite));
  // Where the naive computation itself breaks down it sets no limit.
  const long double limit_max = std::max(std::isfinite(allowed.max) ? 2 * allowed.max : 0, ulp<S>(max_ref));
  const long double limit_rms = std::max(std::isfinite(allowed.rms) ? 2 * allowed.rms : 0, ulp<S>(rms_ref) / 2);
  const bool ok = error.max <= limit_max && error.rms <= limit_rms;
  std::ostringstream text;
  text << "max error " << error.max << " (limit " << limit_max << "), rms error " << error.rms << " (limit "
       << limit_rms << ')';
  if (!ok) {
    int shown = 0;
    for (std::size_t i = 0; i < o.size() && shown < 5; ++i) {
      if (Detail::difference(o[i], r[i]) <= limit_max && error.max > limit_max) continue;
      text << "\n  [" << i << "] got " << o[i] << ", expected " << r[i];
      ++shown;
    }
  }
  return {ok, text.str()};
}

}  // namespace kformer::Testing
