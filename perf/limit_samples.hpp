// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "case.hpp"
#include "measure/machine_space.hpp"

namespace kformer::perf {

/// What limits a case on this machine at this moment: instructions, and whichever access to memory moves the most. The
/// clock of a processor wanders, so samples are short and meant to be taken between the measurements they judge.
class LimitSamples {
 public:
  /// Seconds that a call of the case takes at least.
  double least_seconds(const Case& c) {
    double seconds = 0;
    if (c.limit != Limit::memory) seconds += c.flops / flop_rate(c);
    if (c.limit != Limit::arithmetic) seconds += c.bytes / bandwidth();
    return seconds;
  }

 private:
  double flop_rate(const Case& c) const {
    return c.int8 ? measure::int8_rate_limit(m_exec) : measure::flop_rate_limit(m_exec, c.dtype);
  }
  double bandwidth() {
    if (!m_bandwidths) m_bandwidths.emplace(measure::copied_doubles<Space>, measure::brief);
    return m_bandwidths->largest();
  }

  Space m_exec;
  std::optional<measure::Bandwidths<Space>> m_bandwidths;
};

}  // namespace kformer::perf
