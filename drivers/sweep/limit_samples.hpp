// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "measure/machine.hpp"

namespace kformer::drivers {

/// The limits of a case, sampled before and after it. A sample is valid for a second: small cases share it.
class LimitSamples {
 public:
  using Clock = std::chrono::steady_clock;
  using Sampler = std::function<measure::CaseLimits(const std::string&, DType, double)>;

  /// \param sample takes a sample, of as many bytes; a power of two
  /// \param now    the time
  explicit LimitSamples(Sampler sample = measure::case_limits,
                        std::function<Clock::time_point()> now = Clock::now)
      : m_sample(std::move(sample)), m_now(std::move(now)) {}

  /// The limits of a case at this moment.
  /// \param bytes that it moves
  measure::CaseLimits now(const std::string& space, DType dtype, double bytes);

 private:
  struct Sample {
    Clock::time_point at;
    measure::CaseLimits limits;
  };
  Sampler m_sample;
  std::function<Clock::time_point()> m_now;
  std::map<std::tuple<std::string, DType, int>, Sample> m_last;  // by space, type and binary logarithm of bytes
};

}  // namespace kformer::drivers
