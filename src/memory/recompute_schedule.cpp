// SPDX-License-Identifier: MIT
#include "kformer/memory/recompute_schedule.hpp"

#include <algorithm>
#include <string>

#include "kformer/core/error.hpp"
#include "kformer/core/option_checks.hpp"

namespace kformer {

namespace {

// How often the optimal reversal of `steps` steps runs a step at most, in the terms of Griewank and Walther.
struct Reversal {
  std::int64_t repetitions = 0;  // t: the least with steps <= β(slots, t)
  std::int64_t shorter = 0;      // β(slots, t - 1): steps that t - 1 repetitions can reverse
  std::int64_t shorter_sum = 0;  // β(slots + 1, t - 1) = β(slots, 0) + ... + β(slots, t - 1)

  Reversal(std::int64_t steps, std::int64_t slots) {
    for (std::int64_t reach = 1; reach < steps; reach = reach * (slots + repetitions) / repetitions) {
      shorter = reach;
      shorter_sum += reach;
      ++repetitions;
    }
  }
};

void check(const char* function, std::int64_t layers, std::int64_t least, std::int64_t slots) {
  if (layers >= least && slots >= 1) return;
  throw DimensionMismatch(std::string("kformer::") + function + ": " + std::to_string(layers) + " layers and " +
                          std::to_string(slots) + " slots; expected at least " + std::to_string(least) +
                          " layers and one slot");
}

}  // namespace

RecomputeSchedule RecomputeSchedule::uniform(Recompute kind, std::int64_t layers, std::int64_t slots) {
  if (layers < 0 || slots < 0)
    throw DimensionMismatch("kformer::RecomputeSchedule::uniform: " + std::to_string(layers) + " layers and " +
                            std::to_string(slots) + " slots; expected no negative numbers");
  Impl::require_enumerator("RecomputeSchedule::uniform", "kind", kind);
  RecomputeSchedule schedule;
  if (kind == Recompute::automatic)
    throw NotSupported(
        "kformer::RecomputeSchedule::uniform: 'auto' is not a per-layer policy; ask kformer::recompute_front "
        "for the schedules and kformer::best_plan for the one that fits a budget");
  if (kind != Recompute::nested) {
    schedule.kinds.assign(static_cast<std::size_t>(layers), kind);
    return schedule;
  }
  if (slots == 0)
    while (slots * slots < layers) ++slots;
  schedule.nested_layers = layers;
  schedule.nested_slots = std::min(slots, layers);
  return schedule;
}

void RecomputeSchedule::check(const char* function) const {
  if (nested_layers == 0 ? nested_slots == 0 : nested_layers > 0 && nested_slots > 0) return;
  throw DimensionMismatch(
      std::string("kformer::") + function + ": the recomputation schedule has " +
      std::to_string(nested_layers) + " nested layers and " + std::to_string(nested_slots) +
      " slots for their inputs; expected at least one slot for nested layers, else 0 and 0");
}

std::int64_t revolve_forwards(std::int64_t layers, std::int64_t slots) {
  if (layers == 0) return 0;
  check("revolve_forwards", layers, 1, slots);
  const std::int64_t steps = layers + 1;  // the last one represents what follows the run
  const Reversal reversal(steps, slots);
  return steps * reversal.repetitions - reversal.shorter_sum - layers;
}

std::int64_t revolve_split(std::int64_t layers, std::int64_t slots) {
  check("revolve_split", layers, 2, slots);
  const Reversal reversal(layers, slots);
  const std::int64_t t = reversal.repetitions;
  // β(slots - 1, t - 1)
  const std::int64_t rest = reversal.shorter * slots / (slots + t - 1);
  return std::min(reversal.shorter, layers - rest);
}

}  // namespace kformer
