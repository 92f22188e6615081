// SPDX-License-Identifier: MIT
#include "train/history.hpp"

#include <cmath>

namespace kformer::drivers {

bool stops_early(const EarlyStopTable& table, const std::vector<EvaluationRecord>& evaluations) {
  double best = std::numeric_limits<double>::infinity();
  std::int64_t without = 0;
  for (const EvaluationRecord& e : evaluations) {
    ++without;
    // A loss that is not a number is no better loss.
    if (e.loss < best - table.min_improvement || (std::isinf(best) && std::isfinite(e.loss))) {
      best = e.loss;
      without = 0;
    }
  }
  return without >= table.patience;
}

}  // namespace kformer::drivers
