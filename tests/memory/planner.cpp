// SPDX-License-Identifier: MIT
#include "kformer/memory/planner.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

using Cost = std::pair<std::size_t, double>;  // bytes and seconds

// The costs of a schedule by the rules of the header, layer by layer.
Cost cost_of(const RecomputeSchedule& schedule, const RecomputeCosts& costs) {
  const auto has = [&](Recompute kind) {
    return std::ranges::find(schedule.kinds, kind) != schedule.kinds.end();
  };
  const bool run = schedule.nested_layers > 0;
  const bool in_kinds = has(Recompute::layer) || has(Recompute::offload);
  std::size_t bytes = 0;
  double seconds = 0;
  if (run) {
    const std::int64_t n = schedule.nested_layers - (in_kinds ? 0 : 1);
    bytes += static_cast<std::size_t>(schedule.nested_slots) * costs.input_bytes + costs.nested_bytes;
    seconds += static_cast<double>(n + revolve_forwards(n, schedule.nested_slots)) * costs.forward_seconds;
  }
  for (const Recompute kind : schedule.kinds) {
    if (kind != Recompute::offload) bytes += costs.input_bytes;
    if (kind == Recompute::none) bytes += costs.none_bytes;
    if (kind == Recompute::pointwise) bytes += costs.pointwise_bytes, seconds += costs.pointwise_seconds;
    if (kind == Recompute::layer) seconds += costs.forward_seconds;
    if (kind == Recompute::offload) seconds += costs.forward_seconds + costs.offload_seconds;
  }
  if (in_kinds) seconds -= costs.forward_seconds;
  if (has(Recompute::offload)) bytes += costs.offload_bytes;
  if (run || in_kinds) bytes += costs.working_bytes;
  return {bytes, seconds};
}

// All that no other beats, of every schedule there is: runs, slots and policies of the layers behind.
std::vector<Cost> exhaustive_front(std::int64_t layers, const RecomputeCosts& costs) {
  const int policies = !costs.rerun ? 2 : costs.offload ? 4 : 3;
  constexpr Recompute kinds[] = {Recompute::none, Recompute::pointwise, Recompute::layer, Recompute::offload};
  std::vector<Cost> all;
  RecomputeSchedule schedule;
  const std::int64_t most_nested = costs.rerun && costs.nested ? layers : 0;
  for (schedule.nested_layers = 0; schedule.nested_layers <= most_nested; ++schedule.nested_layers) {
    const auto others = static_cast<std::size_t>(layers - schedule.nested_layers);
    std::int64_t assignments = 1;
    for (std::size_t i = 0; i < others; ++i) assignments *= policies;
    for (std::int64_t assignment = 0; assignment < assignments; ++assignment) {
      schedule.kinds.clear();
      for (std::int64_t rest = assignment; schedule.kinds.size() < others; rest /= policies)
        schedule.kinds.push_back(kinds[rest % policies]);
      const std::int64_t most = std::max<std::int64_t>(schedule.nested_layers, 1);
      for (schedule.nested_slots = 1; schedule.nested_slots <= most; ++schedule.nested_slots)
        all.push_back(cost_of(schedule, costs));
    }
  }
  std::ranges::sort(all);
  std::vector<Cost> front;
  for (const Cost& cost : all)
    if (front.empty() || cost.second < front.back().second) front.push_back(cost);
  return front;
}

// Small whole numbers: sums are exact, and ties and costs that make no sense are frequent.
RecomputeCosts random_costs(std::mt19937_64& random) {
  const auto draw = [&](std::uint64_t most) { return random() % (most + 1); };
  RecomputeCosts costs;
  costs.input_bytes = draw(8);
  costs.none_bytes = draw(40);
  costs.pointwise_bytes = draw(30);
  costs.working_bytes = draw(40);
  costs.pointwise_seconds = static_cast<double>(draw(6));
  costs.forward_seconds = static_cast<double>(draw(20));
  costs.offload = draw(1) == 1;
  costs.offload_seconds = static_cast<double>(draw(9));
  costs.nested_bytes = draw(1) * draw(16);
  costs.offload_bytes = draw(1) * draw(16);
  costs.rerun = draw(5) > 0;
  costs.nested = draw(3) > 0;
  return costs;
}

// Like a layer of Llama-3-8B with 8192 tokens in bf16.
RecomputeCosts llama_costs() {
  RecomputeCosts costs;
  costs.input_bytes = 8192 * 8192;
  costs.none_bytes = 131072 * 8192ull;
  costs.pointwise_bytes = 86016 * 8192ull;
  costs.working_bytes = 139264 * 8192ull;
  costs.pointwise_seconds = 0.011;
  costs.forward_seconds = 0.37;
  costs.offload = true;
  costs.offload_seconds = 0.013;
  return costs;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(planner)

BOOST_AUTO_TEST_CASE(the_front_is_that_of_an_exhaustive_search) {
  std::mt19937_64 random(18);
  for (std::int64_t layers = 0; layers <= 8; ++layers)
    for (int draw = 0; draw < (layers < 7 ? 100 : 12); ++draw) {
      const RecomputeCosts costs = random_costs(random);
      std::vector<Cost> front;
      for (const RecomputePlan& plan : recompute_front(layers, costs)) {
        front.emplace_back(plan.bytes, plan.seconds);
        BOOST_TEST(plan.schedule.layers() == layers);
        BOOST_TEST((cost_of(plan.schedule, costs) == front.back()));
      }
      BOOST_TEST_CONTEXT(layers << " layers, draw " << draw)
      BOOST_TEST((front == exhaustive_front(layers, costs)));
    }
}

// A machine's seconds are no whole numbers: sums depend on their order.
RecomputeCosts random_rates(std::mt19937_64& random) {
  RecomputeCosts costs = random_costs(random);
  std::uniform_real_distribution<double> draw(0, 1);
  costs.pointwise_seconds = 0.1 * draw(random);
  costs.forward_seconds = draw(random);
  costs.offload_seconds = draw(random);
  return costs;
}

BOOST_AUTO_TEST_CASE(seconds_of_a_schedule_are_those_of_its_plan) {
  std::mt19937_64 random(19);
  for (std::int64_t layers = 1; layers <= 40; ++layers) {
    const RecomputeCosts costs = random_rates(random), whole = random_costs(random);
    for (const RecomputePlan& plan : recompute_front(layers, costs))
      BOOST_TEST(recompute_seconds(plan.schedule, costs) == plan.seconds);
    for (const RecomputePlan& plan : recompute_front(layers, whole))
      BOOST_TEST(recompute_seconds(plan.schedule, whole) == cost_of(plan.schedule, whole).second);
  }
}

BOOST_AUTO_TEST_CASE(seconds_of_uniform_schedules) {
  const RecomputeCosts costs{.pointwise_seconds = 3, .forward_seconds = 100, .offload_seconds = 7};
  const auto seconds = [&](Recompute kind, std::int64_t slots = 0) {
    return recompute_seconds(RecomputeSchedule::uniform(kind, 5, slots), costs);
  };
  BOOST_TEST(seconds(Recompute::none) == 0);
  BOOST_TEST(seconds(Recompute::pointwise) == 15);
  BOOST_TEST(seconds(Recompute::layer) == 400);
  BOOST_TEST(seconds(Recompute::offload) == 435);
  // Without a second slot the four layers before the last run 4 times themselves, and 3 + 2 + 1 + 0 times for others.
  BOOST_TEST(seconds(Recompute::nested, 1) == 1000);
  BOOST_TEST(seconds(Recompute::nested, 5) == 400);
  BOOST_TEST(recompute_seconds({}, costs) == 0);
  // Behind a nested run another layer is the last.
  BOOST_TEST(recompute_seconds({2, 2, {Recompute::none, Recompute::layer, Recompute::pointwise}}, costs) ==
             203);
  check_error<NotSupported>([&] { recompute_seconds({0, 0, {Recompute::nested}}, costs); },
                            "kformer::recompute_seconds: 'nested' is not a per-layer policy; expected none, "
                            "pointwise, layer or offload in kinds");
}

bool allows(const RecomputeCosts& costs, Recompute kind) {
  if (kind == Recompute::none || kind == Recompute::pointwise) return true;
  return costs.rerun && (kind != Recompute::offload || costs.offload) &&
         (kind != Recompute::nested || costs.nested);
}

BOOST_AUTO_TEST_CASE(no_policy_that_fits_is_faster_than_the_best_plan) {
  std::mt19937_64 random(20);
  int compared = 0;
  for (int draw = 0; draw < 400; ++draw) {
    const auto layers = static_cast<std::int64_t>(1 + random() % 40);
    RecomputeCosts costs = random_rates(random);
    // A policy that keeps less than another is there because it is smaller.
    costs.pointwise_bytes = std::min(costs.pointwise_bytes, costs.none_bytes);
    const auto front = recompute_front(layers, costs);
    std::vector<Cost> fixed;
    for (const Recompute kind :
         {Recompute::none, Recompute::pointwise, Recompute::layer, Recompute::nested, Recompute::offload})
      if (allows(costs, kind)) {
        const auto schedule = RecomputeSchedule::uniform(kind, layers);
        fixed.emplace_back(cost_of(schedule, costs).first, recompute_seconds(schedule, costs));
      }
    const std::size_t most = std::ranges::max(fixed).first + 2;
    for (int i = 0; i < 50; ++i) {
      const std::size_t budget = random() % most;
      double best = std::numeric_limits<double>::infinity();
      for (const auto& [bytes, seconds] : fixed)
        if (bytes <= budget) best = std::min(best, seconds);
      if (std::isinf(best)) continue;
      ++compared;
      const RecomputePlan& plan = best_plan(front, budget);
      BOOST_TEST(plan.bytes <= budget);
      BOOST_TEST(plan.seconds <= best);
    }
  }
  BOOST_TEST(compared > 5000);
}

BOOST_AUTO_TEST_CASE(time_falls_as_the_budget_rises) {
  for (const bool offload : {false, true}) {
    RecomputeCosts costs = llama_costs();
    costs.offload = offload;
    const auto front = recompute_front(32, costs);
    const std::size_t least = front.front().bytes, most = front.back().bytes, step = (most - least) / 9000;
    BOOST_TEST(front.back().seconds == 0);
    BOOST_TEST(most == 32 * (costs.none_bytes + costs.input_bytes));
    double before = front.front().seconds;
    for (std::size_t i = 0; i < 10000; ++i) {
      const std::size_t budget = least + i * step;
      const RecomputePlan& plan = best_plan(front, budget);
      if (plan.bytes > budget || plan.seconds > before)
        BOOST_ERROR("budget " + std::to_string(budget) + ": " + std::to_string(plan.bytes) + " bytes, " +
                    std::to_string(plan.seconds) + " s after " + std::to_string(before) + " s");
      before = plan.seconds;
      const bool faster_fits =
          std::ranges::any_of(front, [&](auto& p) { return p.bytes <= budget && p.seconds < plan.seconds; });
      if (faster_fits) BOOST_ERROR("a faster plan fits into " + std::to_string(budget));
    }
    BOOST_TEST(before == 0);
    BOOST_TEST(best_plan(front, least).bytes == least);
  }
}

BOOST_AUTO_TEST_CASE(a_budget_that_is_too_small_names_the_least) {
  RecomputeCosts costs = llama_costs();
  costs.offload = false;
  const auto front = recompute_front(32, costs);
  const std::size_t least = costs.working_bytes + costs.input_bytes;
  BOOST_TEST(front.front().bytes == least);
  BOOST_TEST(front.front().schedule.nested_slots == 1);
  check_error<OutOfMemory>([&] { best_plan(front, least - 1); },
                           "kformer::best_plan: no schedule of recomputation fits into 1207959551 bytes (1.12 "
                           "GiB); the smallest sufficient budget is 1207959552 bytes (1.12 GiB)");
}

BOOST_AUTO_TEST_CASE(two_hundred_layers_take_less_than_a_second) {
  const std::clock_t start = std::clock();  // of this process: other programs may run
  const auto front = recompute_front(200, llama_costs());
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  BOOST_TEST(front.size() > 500u);
  BOOST_TEST(seconds < 1);  // 0.25 with sanitizers
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
