// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <optional>

#include "case.hpp"
#include "measure/machine_space.hpp"

namespace kformer::perf {

/// What limits a case on this machine at this moment: instructions, whichever access to memory moves the most, and
/// whichever reads the most. The clock of a processor wanders, so samples are short and meant to be taken between the
/// measurements they judge.
class LimitSamples {
 public:
  /// Seconds that a call of the case takes at least.
  double least_seconds(const Case& c) {
    double seconds = 0;
    if (c.limit != Limit::memory) seconds += c.flops / flop_rate(c);
    if (c.limit == Limit::arithmetic) return seconds;
    const auto bandwidth = sampled_bandwidth();
    const double reads = c.limit == Limit::memory ? c.bytes - c.written : 0;
    return seconds + std::max(c.bytes / bandwidth.moved, reads / bandwidth.read);
  }

 private:
  double flop_rate(const Case& c) const {
    return c.int8 ? measure::int8_rate_limit(m_exec) : measure::flop_rate_limit(m_exec, c.dtype);
  }
  measure::Bandwidths<Space>::Largest sampled_bandwidth() {
    if (!m_bandwidths) m_bandwidths.emplace(measure::copied_doubles<Space>, measure::brief);
    return m_bandwidths->largest_of_each();
  }

  Space m_exec;
  std::optional<measure::Bandwidths<Space>> m_bandwidths;
};

}  // namespace kformer::perf
