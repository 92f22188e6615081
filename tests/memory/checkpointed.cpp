// SPDX-License-Identifier: MIT
#include "kformer/memory/checkpointed.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

/// Runs a chain of steps on arrays that hold the number of the step whose input they contain, and checks each
/// call: the input is the right one, the result is not written over something that is read.
class RecordedChain {
 public:
  explicit RecordedChain(const RecomputeSchedule& schedule)
      : m_values(static_cast<std::size_t>(CheckpointedChain<int*>::kept_states(schedule)) + 4, -1) {
    std::vector<int*> kept;
    for (std::size_t i = 0; i + 4 < m_values.size(); ++i) kept.push_back(&m_values[i]);
    m_chain = CheckpointedChain<int*>(schedule, kept);
    start();
  }

  void start() { *m_chain.first() = 0; }

  void forward() {
    m_gradient = nullptr;
    m_chain.forward([&](std::int64_t i, int* x, int* y) { run(i, x, y); }, array(0), array(1));
    BOOST_TEST(*array(0) == m_chain.steps());
  }

  /// Gradients are negative: −i is that of the input of step i.
  void backward() {
    m_repeated = 0;
    m_next = m_chain.steps();
    m_gradient = array(2);
    *array(2) = -static_cast<int>(m_chain.steps());
    int* dx = m_chain.backward([&](std::int64_t i, int* x, int* y) { run(i, x, y); },
                               [&](std::int64_t i, int* x, int* dy, int* to) {
                                 BOOST_TEST(i == --m_next);
                                 BOOST_TEST(*x == i);
                                 BOOST_TEST(*dy == -(i + 1));
                                 BOOST_TEST(to != x);
                                 BOOST_TEST(to != dy);
                                 BOOST_TEST(dy == m_gradient);
                                 *to = -static_cast<int>(i);
                                 m_gradient = to;
                               },
                               array(2), array(3), array(1), m_dx);
    BOOST_TEST(m_next == 0);
    BOOST_TEST(*dx == 0);
    if (m_dx) BOOST_TEST(dx == *m_dx);
  }

  std::int64_t repeated() const { return m_repeated; }
  void wants_gradient_in(int* dx) { m_own = dx, m_dx = &m_own; }

 private:
  int* array(std::size_t i) { return &m_values[m_values.size() - 4 + i]; }
  void run(std::int64_t i, int* x, int* y) {
    BOOST_TEST(*x == i);
    BOOST_TEST(x != y);
    BOOST_TEST(y != m_gradient);
    *y = static_cast<int>(i) + 1;
    ++m_repeated;
  }

  std::vector<int> m_values;
  CheckpointedChain<int*> m_chain;
  std::int64_t m_repeated = 0, m_next = 0;
  int* m_gradient = nullptr;  // the array that holds the gradient at hand
  int* m_own = nullptr;
  int** m_dx = nullptr;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(checkpointed)

BOOST_AUTO_TEST_CASE(every_schedule_gives_each_step_its_input_once) {
  for (const Recompute kind : {Recompute::none, Recompute::pointwise, Recompute::layer})
    for (std::int64_t steps = 1; steps < 6; ++steps) {
      RecordedChain chain(RecomputeSchedule::uniform(kind, steps));
      chain.forward();
      chain.backward();
      BOOST_TEST(chain.repeated() == 0);
    }
}

BOOST_AUTO_TEST_CASE(nested_steps_are_repeated_as_rarely_as_possible) {
  for (std::int64_t steps = 1; steps < 16; ++steps)
    for (std::int64_t slots = 1; slots <= steps; ++slots)
      BOOST_TEST_CONTEXT(steps << " steps, " << slots << " kept inputs") {
        RecordedChain chain(RecomputeSchedule::uniform(Recompute::nested, steps, slots));
        for (int pass = 0; pass < 2; ++pass) {
          chain.start();
          chain.forward();
          chain.backward();
          // What forward kept need not be made again.
          BOOST_TEST(chain.repeated() <= revolve_forwards(steps, slots));
        }
      }
}

BOOST_AUTO_TEST_CASE(policies_mix) {
  RecomputeSchedule schedule{
      .nested_layers = 5, .nested_slots = 2, .kinds = {Recompute::layer, Recompute::none}};
  for (int i = 0; i < 3; ++i) schedule.kinds.push_back(Recompute::offload);
  // Offloaded inputs take turns in two arrays; the test has no other memory from which to bring them back.
  BOOST_TEST(CheckpointedChain<int*>::kept_states(schedule) == 2 + 2 + 2);
  schedule.kinds.resize(2);
  RecordedChain chain(schedule);
  int dx = 0;
  chain.wants_gradient_in(&dx);
  chain.forward();
  chain.backward();
}

// x ← x + sin x in place of a layer: the gradient of every schedule has the bits of the one that keeps all inputs.
BOOST_AUTO_TEST_CASE(any_callables_run_under_a_policy) {
  constexpr std::int64_t steps = 7;
  const auto gradient_of = [&](const RecomputeSchedule& schedule, std::int64_t& runs, std::int64_t& arrays) {
    using State = std::shared_ptr<double>;
    runs = arrays = 0;
    const State dx = kformer::checkpointed(
        schedule, [&] { return ++arrays, std::make_shared<double>(-1e300); }, [](const State& x) { *x = 0.3; },
        [&](std::int64_t i, const State& x, const State& y) {
          *y = *x + std::sin(static_cast<double>(i) + *x);
          ++runs;
        },
        [](const State& y, const State& dy) { *dy = 2 * *y; },
        [](std::int64_t i, const State& x, const State& dy, const State& to) {
          *to = *dy * (1 + std::cos(static_cast<double>(i) + *x));
        });
    return *dx;
  };
  std::int64_t runs = 0, arrays = 0;
  const double expected = gradient_of(RecomputeSchedule::uniform(Recompute::none, steps), runs, arrays);
  BOOST_TEST(runs == steps);
  BOOST_TEST(arrays == steps + 3);
  double x = 0.3, slope = 1;
  for (std::int64_t i = 0; i < steps; ++i) {
    slope *= 1 + std::cos(static_cast<double>(i) + x);
    x += std::sin(static_cast<double>(i) + x);
  }
  BOOST_TEST(expected == 2 * x * slope, boost::test_tools::tolerance(1e-14));
  for (std::int64_t slots = 1; slots <= steps; ++slots) {
    const double got = gradient_of(RecomputeSchedule::uniform(Recompute::nested, steps, slots), runs, arrays);
    BOOST_TEST(got == expected);
    BOOST_TEST(arrays == slots + 4);
    BOOST_TEST(runs <= steps + revolve_forwards(steps, slots));
  }
}

BOOST_AUTO_TEST_CASE(a_chain_of_callables_that_cannot_run_is_refused) {
  const auto call = [](const RecomputeSchedule& schedule) {
    const auto nothing = [](auto...) { BOOST_ERROR("nothing runs before the schedule is checked"); };
    kformer::checkpointed(schedule, [] { return 0; }, nothing, nothing, nothing, nothing);
  };
  check_error<NotSupported>([&] { call({}); }, "kformer::checkpointed: the schedule has no step");
  const std::string expected =
      " slots for their inputs; expected at least one slot for nested layers, else 0 and 0";
  check_error<DimensionMismatch>(
      [&] { call({.nested_layers = 4, .nested_slots = 0, .kinds = {}}); },
      "kformer::checkpointed: the recomputation schedule has 4 nested layers and 0" + expected);
  check_error<DimensionMismatch>(
      [&] { call({.nested_layers = 0, .nested_slots = 2, .kinds = {Recompute::layer}}); },
      "kformer::checkpointed: the recomputation schedule has 0 nested layers and 2" + expected);
  check_error<DimensionMismatch>([] { RecomputeSchedule::uniform(Recompute::layer, -3); },
                                 "kformer::RecomputeSchedule::uniform: -3 layers and 0 slots; expected no "
                                 "negative numbers");
  check_error<DimensionMismatch>([] { RecomputeSchedule::uniform(Recompute::nested, 4, -4); },
                                 "kformer::RecomputeSchedule::uniform: 4 layers and -4 slots; expected no "
                                 "negative numbers");
  check_error<DimensionMismatch>(
      [] { CheckpointedChain<int>(RecomputeSchedule::uniform(Recompute::layer, 4), {1}); },
      "kformer::CheckpointedChain: 1 arrays for a schedule of 4 steps; expected a step and the 4 arrays of "
      "kept_states(schedule)");
  check_error<NotSupported>(
      [&] { call(RecomputeSchedule::uniform(Recompute::offload, 3)); },
      "kformer::checkpointed: the schedule offloads, but callables do not say where states "
      "lie; use CheckpointedChain with OffloadedStates");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
