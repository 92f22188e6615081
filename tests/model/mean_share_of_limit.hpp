// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <string>

#include "kformer/core/tolerance.hpp"
#include "ops/common/host_tensor.hpp"

namespace kformer::Testing {

using kformer::Impl::HostTensor;

/// The tolerance rule compares two samples of rounding errors, and after a dozen operations a small tensor is a
/// small sample with few independent errors. So several layers of one kind are tried, and the share of the
/// limit that they use is averaged.
class MeanShareOfLimit {
 public:
  template <class Real, class Naive>
  void add(DType stored, const HostTensor<Real>& out, const HostTensor<Real>& expected,
           const HostTensor<Naive>& naive) {
    const auto& reference = expected.values();
    const ErrorNorms error = error_norms(out.values(), reference);
    const ErrorNorms limit =
        allowed_error(stored, error_norms(naive.values(), reference), magnitude(reference));
    ++m_count;
    m_max += error.max / limit.max;
    m_rms += error.rms / limit.rms;
  }
  void check(const std::string& what) const {
    BOOST_TEST((max() <= 1 && rms() <= 1),
               what << ": " << max() << " of the largest error allowed, " << rms() << " of the rms");
  }
  long double max() const { return m_max / m_count; }
  long double rms() const { return m_rms / m_count; }

 private:
  int m_count = 0;
  long double m_max = 0, m_rms = 0;
};

}  // namespace kformer::Testing
