// SPDX-License-Identifier: MIT
#include "train/history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kformer::drivers {

namespace {

// Of an objective that has some.
bool has_no_reward(const StepRecord& step) {
  const auto reward = step.figures.find("reward");
  return reward != step.figures.end() && std::isnan(reward->second);
}

// Without a target it has no loss; yet its gradients are 0, unless the model that sampled its targets had diverged.
bool is_empty(const StepRecord& step) { return step.tokens == 0 && std::isfinite(step.gradient_norm); }

// What the last step says of the model.
std::string fault_of(const StepRecord& last, double least_scale) {
  if (is_empty(last)) return {};
  if (!std::isfinite(last.loss)) return "the loss of the last step is not finite";
  if (!std::isfinite(last.gradient_norm) && last.loss_scale <= least_scale)
    return "the gradients of the last step are not finite";
  return {};
}

}  // namespace

bool stops_early(const EarlyStopTable& table, const std::vector<EvaluationRecord>& evaluations) {
  double best = std::numeric_limits<double>::infinity();
  std::int64_t without = 0;
  for (const EvaluationRecord& e : evaluations) {
    ++without;
    // A loss that is not a number is no better loss.
    if (e.loss < best - table.min_improvement) {
      best = e.loss;
      without = 0;
    }
  }
  return without >= table.patience;
}

std::string failure_text(const std::vector<StepRecord>& steps, double least_scale) {
  if (steps.empty()) return {};
  if (std::ranges::all_of(steps, is_empty))
    return "no step had a target with a loss, so that nothing was learnt; look at the data and their packing";
  const std::string fault = fault_of(steps.back(), least_scale);
  if (fault.empty() && std::ranges::all_of(steps, has_no_reward))
    return "no completion of any step had a reward, so that nothing was learnt; look at the programs of "
           "[[reward]]";
  const auto learnt =
      std::find_if(steps.rbegin(), steps.rend(), [](const StepRecord& s) { return !s.skipped; });
  if (learnt == steps.rend())
    return fault.empty()
               ? "no step changed the weights: no gradients were finite, and the loss scale had not fallen "
                 "to its least; more steps or a smaller precision.loss_scale may help"
               : "the training diverged: " + fault +
                     ", and no step changed the weights; look at the weights that it began with";
  if (fault.empty()) return {};
  return fmt::format(
      "the training diverged: {}, and the weights are those after step {} of {}; a smaller optimizer.lr, a "
      "longer "
      "schedule.warmup_steps or a smaller optimizer.max_norm may help",
      fault, learnt->step + 1, steps.size());
}

}  // namespace kformer::drivers
