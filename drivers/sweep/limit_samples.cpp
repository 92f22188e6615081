// SPDX-License-Identifier: MIT
#include "sweep/limit_samples.hpp"

#include <cmath>

namespace kformer::drivers {

measure::CaseLimits LimitSamples::now(const std::string& space, DType dtype, double bytes) {
  const int size = bytes > 1 ? std::ilogb(bytes) : 0;
  const auto found = m_last.find({space, dtype, size});
  if (found != m_last.end() && m_now() - found->second.at < std::chrono::seconds(1))
    return found->second.limits;
  const measure::CaseLimits limits = m_sample(space, dtype, std::ldexp(1.0, size));
  m_last[{space, dtype, size}] = {m_now(), limits};
  return limits;
}

}  // namespace kformer::drivers
