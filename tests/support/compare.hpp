// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>

#include "kformer/core/tolerance.hpp"
#include "ops/common/error_limits.hpp"
#include "ops/common/host_tensor.hpp"

namespace kformer::Testing {

/// The oracle's arithmetic for kernels of storage type T.
template <class T>
using oracle_t = std::conditional_t<std::is_same_v<T, double>, long double, double>;

/// The arithmetic of the naive computation in T, with its expected errors.
template <class T>
using naive_t = kformer::Impl::Estimated<compute_t<T>>;

/// The oracle's results, which the naive computation has as well.
template <class C>
auto exact_values(const kformer::Impl::HostTensor<kformer::Impl::Estimated<C>>& naive) {
  kformer::Impl::HostTensor<typename kformer::Impl::Estimated<C>::Value> exact({0});
  for (const auto& x : naive.values()) exact.values().push_back(x.value());
  return exact;
}

/// The verdict and the text that explains it.
struct Comparison {
  bool ok;
  std::string report;
  long double share = 0;  ///< the largest share of a limit that was used
};

/// What the rule said of some tensors.
struct Tally {
  std::int64_t tensors = 0, rejected = 0;
  long double share = 0;  ///< the largest of a limit
};

/// Where `compare` counts its verdicts, if anywhere: draws.hpp sets it.
inline Tally* counted_in = nullptr;

/// Judges `out`, stored as `storage`, by the rule of kformer/core/tolerance.hpp. `naive` is the computation in that type, either
/// with its expected errors or, where codes are discrete, as one sample.
template <class Real, class Naive>
Comparison compare_as(DType storage, const kformer::Impl::HostTensor<Real>& out,
                      const kformer::Impl::HostTensor<Real>& ref,
                      const kformer::Impl::HostTensor<Naive>& naive) {
  const auto& o = out.values();
  const auto& r = ref.values();
  if (o.size() != r.size() || naive.values().size() != r.size()) return {false, "the sizes differ"};
  const ErrorLimits limits = kformer::Impl::error_limits(storage, ref, naive);
  const Verdict verdict = limits.judge(o, r);
  std::ostringstream text;
  text << verdict.wrong << " of " << o.size() << " elements out of tolerance, rms error " << verdict.rms
       << " (limit " << verdict.rms_limit << ')';
  int shown = 0;
  for (std::size_t i = verdict.first_wrong; verdict.wrong > 0 && i < o.size() && shown < 5; ++i)
    if (!(limits.error(i, o[i], r[i]) <= limits.of(i))) {
      text << "\n  [" << i << "] got " << o[i] << ", expected " << r[i] << " ± " << limits.of(i);
      ++shown;
    }
  if (counted_in) {
    ++counted_in->tensors;
    counted_in->rejected += !verdict.ok();
    counted_in->share = std::max(counted_in->share, verdict.share);
  }
  return {verdict.ok(), text.str(), verdict.share};
}

// In references.cpp.
extern template Comparison compare_as(DType, const kformer::Impl::HostTensor<double>&,
                                      const kformer::Impl::HostTensor<double>&,
                                      const kformer::Impl::HostTensor<kformer::Impl::Estimated<float>>&);
extern template Comparison compare_as(DType, const kformer::Impl::HostTensor<long double>&,
                                      const kformer::Impl::HostTensor<long double>&,
                                      const kformer::Impl::HostTensor<kformer::Impl::Estimated<double>>&);

/// The same of a type.
template <class S, class Real, class Naive>
Comparison compare(const kformer::Impl::HostTensor<Real>& out, const kformer::Impl::HostTensor<Real>& ref,
                   const kformer::Impl::HostTensor<Naive>& naive) {
  return compare_as(dtype_of<S>, out, ref, naive);
}

}  // namespace kformer::Testing
