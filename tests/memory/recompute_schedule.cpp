// SPDX-License-Identifier: MIT
#include "kformer/memory/recompute_schedule.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

// Where a reversal stands: which inputs are kept, which input is at hand (or none), layers not reversed yet.
struct State {
  bool backward;
  unsigned kept;
  int at, left;
  auto operator<=>(const State&) const = default;
};

// The fewest forwards that any order of work repeats: a shortest path over all of them. Where `last_lasts`, the
// activations of the last layer are still there when backward begins.
int fewest_forwards(int layers, int slots, bool last_lasts) {
  constexpr int nothing = -1;
  std::map<State, int> best;
  std::deque<std::pair<State, int>> open{{{false, 0, 0, layers}, 0}};
  while (!open.empty()) {
    const auto [s, cost] = open.front();
    open.pop_front();
    if (!best.emplace(s, cost).second) continue;
    if (s.left == 0) return cost;
    const auto free = [&](State next) { open.push_front({next, cost}); };
    for (int i = 0; i < layers; ++i) {
      const unsigned bit = 1u << i;
      if (s.at == i && std::popcount(s.kept) < slots) free({s.backward, s.kept | bit, s.at, s.left});
      if ((s.kept & bit) == 0) continue;
      free({s.backward, s.kept & ~bit, s.at, s.left});
      if (s.backward) free({true, s.kept, i, s.left});
    }
    if (!s.backward && s.at == layers) free({true, s.kept, nothing, layers - last_lasts});
    if (s.backward && s.at == s.left - 1) free({true, s.kept, nothing, s.left - 1});
    if (s.at != nothing && s.at < layers) {
      const State next{s.backward, s.kept, s.at + 1, s.left};
      s.backward ? open.push_back({next, cost + 1}) : free(next);
    }
  }
  return -1;
}

// Follows revolve_split as the header says and counts forwards, those on the way to an input and the own ones.
struct Run {
  std::int64_t on_the_way = 0, own = 0, kept = 0, most_kept = 0;

  void reverse(std::int64_t layers, std::int64_t slots) {
    most_kept = std::max(most_kept, ++kept);
    while (layers > 1) {
      const std::int64_t split = revolve_split(layers, slots);
      BOOST_TEST((1 <= split && split < layers));
      on_the_way += split;
      if (slots > 1)
        reverse(layers - split, slots - 1);
      else
        own += layers - split;
      layers = split;
    }
    ++own;
    --kept;
  }

  // The first forward is free, and the activations of the last layer do not last.
  void reverse_after_forward(std::int64_t layers, std::int64_t slots) {
    if (layers > 1 && slots > 1) {
      const std::int64_t split = revolve_split(layers, slots);
      most_kept = std::max(most_kept, ++kept);
      reverse_after_forward(layers - split, slots - 1);
      --kept;
      layers = split;
    }
    reverse(layers, slots);
  }
};

// β(s, t) of Griewank and Walther.
std::int64_t beta(std::int64_t s, std::int64_t t) {
  std::int64_t value = 1;
  for (std::int64_t i = 1; i <= t; ++i) value = value * (s + i) / i;
  return value;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recompute_schedule)

BOOST_AUTO_TEST_CASE(no_order_of_work_repeats_fewer_forwards) {
  for (int layers = 1; layers <= 7; ++layers)
    for (int slots = 1; slots <= layers; ++slots)
      BOOST_TEST_CONTEXT(layers << " layers, " << slots << " slots") {
        BOOST_TEST(revolve_forwards(layers, slots) == fewest_forwards(layers, slots, false));
        BOOST_TEST(revolve_forwards(layers - 1, slots) == fewest_forwards(layers, slots, true));
      }
}

BOOST_AUTO_TEST_CASE(the_splits_lead_to_as_many_forwards) {
  for (std::int64_t layers = 1; layers <= 60; ++layers)
    for (std::int64_t slots = 1; slots <= layers; ++slots)
      BOOST_TEST_CONTEXT(layers << " layers, " << slots << " slots") {
        Run lost, lasts;
        lost.reverse_after_forward(layers, slots);
        BOOST_TEST(lost.on_the_way == revolve_forwards(layers, slots));
        BOOST_TEST(lost.own == layers);
        BOOST_TEST(lost.most_kept <= slots);
        lasts.reverse(layers, slots);  // the first forward is layers - 1 forwards of it
        BOOST_TEST(lasts.on_the_way == revolve_forwards(layers - 1, slots) + layers - 1);
        BOOST_TEST(lasts.own == layers);
        BOOST_TEST(lasts.most_kept <= slots);
      }
}

BOOST_AUTO_TEST_CASE(forwards_are_those_of_the_formula) {
  for (std::int64_t layers = 1; layers <= 200; ++layers) {
    BOOST_TEST(revolve_forwards(layers, 1) == layers * (layers - 1) / 2);
    for (const std::int64_t slots : {layers, layers + 1, 2 * layers, std::int64_t(1) << 30})
      BOOST_TEST(revolve_forwards(layers, slots) == 0);
    for (std::int64_t slots = 1; slots < layers; ++slots) {
      const std::int64_t l = layers + 1;
      std::int64_t t = 1;
      while (beta(slots, t) < l) ++t;
      BOOST_TEST(revolve_forwards(layers, slots) == l * t - beta(slots + 1, t - 1) - layers);
      BOOST_TEST(revolve_forwards(layers, slots) > 0);
    }
  }
  BOOST_TEST(revolve_forwards(0, 1) == 0);
  BOOST_TEST(revolve_forwards(1000000, 1) == std::int64_t(1000000) * 999999 / 2);
}

BOOST_AUTO_TEST_CASE(one_policy_for_all_layers) {
  using enum Recompute;
  for (const Recompute kind : {none, pointwise, layer, offload}) {
    const auto schedule = RecomputeSchedule::uniform(kind, 5);
    BOOST_TEST((schedule.kinds == std::vector<Recompute>(5, kind)));
    BOOST_TEST(schedule.nested_layers == 0);
    BOOST_TEST(schedule.layers() == 5);
  }
  for (const auto& [layers, asked, slots] : {std::tuple(16, 0, 4), std::tuple(17, 0, 5), std::tuple(1, 0, 1),
                                             std::tuple(0, 0, 0), std::tuple(16, 3, 3), std::tuple(4, 9, 4)}) {
    const auto schedule = RecomputeSchedule::uniform(nested, layers, asked);
    BOOST_TEST(schedule.nested_layers == layers);
    BOOST_TEST(schedule.nested_slots == slots);
    BOOST_TEST(schedule.kinds.empty());
    BOOST_TEST(schedule.layers() == layers);
  }
  check_error<NotSupported>(
      [] { RecomputeSchedule::uniform(automatic, 3); },
      "kformer::RecomputeSchedule::uniform: 'auto' is not a per-layer policy; ask kformer::recompute_front for "
      "the schedules and kformer::best_plan for the one that fits a budget");
}

BOOST_AUTO_TEST_CASE(a_run_needs_layers_and_a_slot) {
  check_error<DimensionMismatch>(
      [] { revolve_forwards(3, 0); },
      "kformer::revolve_forwards: 3 layers and 0 slots; expected at least 1 layers and one slot");
  check_error<DimensionMismatch>(
      [] { revolve_split(1, 2); },
      "kformer::revolve_split: 1 layers and 2 slots; expected at least 2 layers and one slot");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
