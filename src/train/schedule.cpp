// SPDX-License-Identifier: MIT
#include "kformer/train/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <sstream>
#include <string>

#include "kformer/core/error.hpp"
#include "kformer/core/option_checks.hpp"

namespace kformer {

double LearningRateSchedule::at(std::int64_t step) const {
  if (step < warmup_steps)
    return learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const std::int64_t decay = decay_steps > 0 ? decay_steps : std::max<std::int64_t>(1, steps / 5);
  const std::int64_t begin = kind == ScheduleKind::wsd ? std::max(warmup_steps, steps - decay) : warmup_steps;
  const double progress =
      step >= steps ? 1.0
                    : std::max(0.0, static_cast<double>(step - begin) / static_cast<double>(steps - begin));
  switch (kind) {
    case ScheduleKind::constant:
      return learning_rate;
    case ScheduleKind::cosine:
      return min_learning_rate +
             (learning_rate - min_learning_rate) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case ScheduleKind::linear:
    case ScheduleKind::wsd:
      break;
  }
  return learning_rate + (min_learning_rate - learning_rate) * progress;
}

void LearningRateSchedule::check() const {
  const auto require = [](bool condition, const char* member, const char* expected, auto value) {
    if (condition) return;
    std::ostringstream text;
    text << "kformer::LearningRateSchedule: " << member << " must " << expected << ", got " << value;
    throw NotSupported(text.str());
  };
  Impl::require_enumerator("LearningRateSchedule", "kind", kind);
  // A larger one overflows in the sums of `at`.
  require(learning_rate >= 0 && learning_rate <= std::numeric_limits<float>::max(), "learning_rate",
          "be between 0 and 3.4e38, the largest float", learning_rate);
  require(min_learning_rate >= 0 && (min_learning_rate <= learning_rate || kind == ScheduleKind::constant),
          "min_learning_rate", "be between 0 and learning_rate", min_learning_rate);
  require(warmup_steps >= 0, "warmup_steps", "not be negative", warmup_steps);
  require(decay_steps >= 0, "decay_steps", "not be negative", decay_steps);
  require(steps > 0 || kind == ScheduleKind::constant, "steps", "be at least 1, except in a constant schedule",
          steps);
}

}  // namespace kformer
