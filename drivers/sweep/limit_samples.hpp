// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <tuple>

#include "measure/machine.hpp"

namespace kformer::drivers {

/// The limits of a case, sampled before and after it. A sample is valid for a second: small cases share it.
class LimitSamples {
 public:
  /// The limits of a case at this moment.
  /// \param bytes that it moves
  measure::CaseLimits now(const std::string& space, DType dtype, double bytes);

 private:
  struct Sample {
    std::chrono::steady_clock::time_point at;
    measure::CaseLimits limits;
  };
  std::map<std::tuple<std::string, DType, int>, Sample> m_last;  // by space, type and binary logarithm of bytes
};

}  // namespace kformer::drivers
