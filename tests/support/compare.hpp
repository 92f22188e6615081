// SPDX-License-Identifier: MIT
#pragma once

#include <sstream>
#include <string>

#include "kformer/core/tolerance.hpp"
#include "ops/common/host_tensor.hpp"

namespace kformer::Testing {

/// The oracle's arithmetic for kernels of storage type T.
template <class T>
using oracle_t = std::conditional_t<std::is_same_v<T, double>, long double, double>;

/// The verdict and the text that explains it.
struct Comparison {
  bool ok;
  std::string report;
};

/// Judges `out`, stored as S, by the rule of kformer/core/tolerance.hpp.
template <class S, class Real, class Naive>
Comparison compare(const kformer::Impl::HostTensor<Real>& out, const kformer::Impl::HostTensor<Real>& ref,
                   const kformer::Impl::HostTensor<Naive>& naive) {
  const auto& o = out.values();
  const auto& r = ref.values();
  if (o.size() != r.size() || naive.values().size() != r.size()) return {false, "the sizes differ"};
  const ErrorNorms error = error_norms(o, r);
  const ErrorNorms limit = allowed_error(dtype_of<S>, error_norms(naive.values(), r), magnitude(r));
  const bool ok = error.max <= limit.max && error.rms <= limit.rms;
  std::ostringstream text;
  text << "max error " << error.max << " (limit " << limit.max << "), rms error " << error.rms << " (limit "
       << limit.rms << ')';
  int shown = 0;
  for (std::size_t i = 0; !ok && i < o.size() && shown < 5; ++i) {
    if (difference(o[i], r[i]) <= limit.max && error.max > limit.max) continue;
    text << "\n  [" << i << "] got " << o[i] << ", expected " << r[i];
    ++shown;
  }
  return {ok, text.str()};
}

}  // namespace kformer::Testing
