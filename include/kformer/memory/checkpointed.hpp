// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/memory/recompute_schedule.hpp"

/// \file
/// Reverses a chain of steps while only some of their inputs are kept. Free of Kokkos: the steps are callables.

namespace kformer {

/// A chain `x_{i+1} = step_i(x_i)` that is run forward and then backward, while a schedule says which `x_i`
/// exist. `State` is a handle of an array, such as a View; the chain never allocates and never copies contents.
///
///     CheckpointedChain<Matrix> chain(schedule, kept);      // kept_states(schedule) arrays
///     fill(chain.first());                                  // x_0
///     chain.forward(run, last, scratch);                    // run(i, x, y): y = step_i(x)
///     ...                                                   // dy: the gradient of `last`
///     const Matrix dx = chain.backward(run, reverse, dy, other, scratch);
///                                                           // reverse(i, x, dy, dx)
///
/// Between two calls of `reverse` the chain calls `run` again for the inputs that it did not keep (Griewank and
/// Walther 2000, doi:10.1145/347837.347846). `reverse` is called once for each step, from the last to the first.
/// `run` must give the same result whenever it is called with the same step and input.
template <class State>
class CheckpointedChain {
 public:
  CheckpointedChain() = default;

  /// The number of arrays that a schedule keeps. All steps with `Recompute::offload` share two of them.
  static std::int64_t kept_states(const RecomputeSchedule& schedule) {
    const auto offloaded = std::ranges::count(schedule.kinds, Recompute::offload);
    return schedule.nested_slots + static_cast<std::int64_t>(schedule.kinds.size()) - offloaded +
           std::min<std::int64_t>(offloaded, 2);
  }

  /// \param schedule what is kept
  /// \param kept     `kept_states(schedule)` arrays
  /// \throws DimensionMismatch if there are more or fewer, or the schedule has no step or no slot for nested ones
  CheckpointedChain(RecomputeSchedule schedule, const std::vector<State>& kept)
      : m_schedule(checked(std::move(schedule), kept.size())),
        m_slots(kept.begin(), kept.begin() + m_schedule.nested_slots) {
    auto own = kept.begin() + m_schedule.nested_slots;
    const auto turns = std::min<std::int64_t>(2, std::ranges::count(m_schedule.kinds, Recompute::offload));
    for (std::int64_t i = 0; i < turns; ++i) m_turns.push_back(*own++);
    std::int64_t n = 0;
    for (const Recompute kind : m_schedule.kinds)
      m_inputs.push_back(kind == Recompute::offload ? offloaded(n++) : *own++);
  }

  /// The number of steps.
  std::int64_t steps() const {
    return m_schedule.nested_layers + static_cast<std::int64_t>(m_schedule.kinds.size());
  }
  /// The array of the n-th step whose input is offloaded.
  const State& offloaded(std::int64_t n) const { return m_turns[at(n % 2)]; }
  /// Where x_0 belongs.
  const State& first() const { return m_slots.empty() ? m_inputs.front() : m_slots.front(); }

  /// The input of step i, which is kept and not offloaded, between `forward` and the next one.
  const State& kept(std::int64_t i) const { return m_inputs[at(i - m_schedule.nested_layers)]; }

  /// Runs all steps.
  /// \param run     `run(i, x, y)` computes step i
  /// \param last    gets the last result
  /// \param scratch overwritten, if there are nested steps
  template <class Run>
  void forward(const Run& run, const State& last, const State& scratch) const {
    std::int64_t begin = 0, slot = 0;
    while (begin < m_schedule.nested_layers) {
      const std::int64_t count = next_kept(begin, slot);
      const bool to_slot = begin + count < m_schedule.nested_layers;
      advance(run, m_slots[at(slot)], begin, count,
              to_slot ? m_slots[at(slot + 1)] : input(begin + count, last), scratch);
      begin += count;
      ++slot;
    }
    for (; begin < steps(); ++begin) run(begin, input(begin, last), input(begin + 1, last));
  }

  /// Reverses all steps, after `forward`.
  /// \param run     as in `forward`
  /// \param reverse `reverse(i, x, dy, dx)` computes the gradient dx of x_i from that of x_{i+1}
  /// \param dy      the gradient of `last`; overwritten
  /// \param other   another array for gradients; overwritten
  /// \param scratch overwritten, if there are nested steps
  /// \param dx      gets the gradient of x_0; if null, one of `dy` and `other` does
  /// \returns the array with the gradient of x_0
  template <class Run, class Reverse>
  State backward(const Run& run, const Reverse& reverse, State dy, State other, const State& scratch,
                 const State* dx = nullptr) const {
    const auto reverse_step = [&](std::int64_t i, const State& x) {
      if (i == 0 && dx) other = *dx;
      reverse(i, x, dy, other);
      std::swap(dy, other);
    };
    for (std::int64_t i = steps(); i-- > m_schedule.nested_layers;)
      reverse_step(i, m_inputs[at(i - m_schedule.nested_layers)]);
    const auto advance_to = [&](std::int64_t slot, std::int64_t begin, std::int64_t count, const State& to) {
      advance(run, m_slots[at(slot)], begin, count, to, other);
    };
    if (m_schedule.nested_layers > 0)
      reverse_nested(reverse_step, advance_to, scratch, 0, m_schedule.nested_layers, 0, true);
    return dy;
  }

 private:
  static RecomputeSchedule checked(RecomputeSchedule schedule, std::size_t kept) {
    schedule.check("CheckpointedChain");
    if (const std::int64_t expected = kept_states(schedule);
        schedule.layers() < 1 || static_cast<std::int64_t>(kept) != expected)
      throw DimensionMismatch("kformer::CheckpointedChain: " + std::to_string(kept) +
                              " arrays for a schedule of " + std::to_string(schedule.layers()) +
                              " steps; expected a step and the " + std::to_string(expected) +
                              " arrays of kept_states(schedule)");
    return schedule;
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  // The input of step i, behind the nested steps; that of the step behind the last one is `last`.
  const State& input(std::int64_t i, const State& last) const {
    return i == steps() ? last : m_inputs[at(i - m_schedule.nested_layers)];
  }

  // How many steps lie between the input in `slot`, that of step `begin`, and the next one that forward keeps.
  std::int64_t next_kept(std::int64_t begin, std::int64_t slot) const {
    return split(m_schedule.nested_layers - begin, slot);
  }
  std::int64_t split(std::int64_t count, std::int64_t slot) const {
    const std::int64_t slots = m_schedule.nested_slots - slot;
    return slots > 1 && count > 1 ? revolve_split(count, slots) : count;
  }

  // Runs `count` steps from x; the result is in `to`, and those in between in `to` and `scratch`.
  template <class Run>
  static void advance(const Run& run, const State& x, std::int64_t begin, std::int64_t count, const State& to,
                      const State& scratch) {
    const State* from = &x;
    for (std::int64_t i = 0; i < count; ++i) {
      const State* next = (count - i) % 2 == 1 ? &to : &scratch;
      run(begin + i, *from, *next);
      from = next;
    }
  }

  // Reverses the steps from `begin` on, whose first input is in `slot`. `kept`: whether the slots behind it
  // hold the inputs that forward left there.
  template <class Reverse, class Advance>
  void reverse_nested(const Reverse& reverse_step, const Advance& advance_to, const State& scratch,
                      std::int64_t begin, std::int64_t count, std::int64_t slot, bool kept) const {
    if (count > 1 && slot + 1 < m_schedule.nested_slots) {
      const std::int64_t first = split(count, slot);
      if (!kept) advance_to(slot, begin, first, m_slots[at(slot + 1)]);
      reverse_nested(reverse_step, advance_to, scratch, begin + first, count - first, slot + 1, kept);
      reverse_nested(reverse_step, advance_to, scratch, begin, first, slot, false);
      return;
    }
    for (; count > 1; --count) {
      advance_to(slot, begin, count - 1, scratch);
      reverse_step(begin + count - 1, scratch);
    }
    reverse_step(begin, m_slots[at(slot)]);
  }

  RecomputeSchedule m_schedule;
  std::vector<State> m_slots, m_turns, m_inputs;
};

/// Runs a chain `x_{i+1} = step_i(x_i)` of any callables under a policy, forward and backward:
///
///     const Matrix dx = checkpointed(schedule, make, fill, run, gradient, reverse);
///
/// Memory is that of the schedule and at most four more arrays. To reuse arrays, use `CheckpointedChain`.
/// \param schedule what is kept; `RecomputeSchedule::uniform(policy, steps)` is one policy for all steps. Of a chain of
///                 callables only inputs can be kept, so `none`, `pointwise` and `layer` are the same here.
/// \param make     `make()` returns an array for a state or for its gradient
/// \param fill     `fill(x)` writes x_0
/// \param run      `run(i, x, y)` computes step i: the same result whenever it is called with the same step and input
/// \param gradient `gradient(y, dy)` computes the gradient of the last result
/// \param reverse  `reverse(i, x, dy, dx)` computes the gradient dx of x_i from that of x_{i+1}
/// \returns the array with the gradient of x_0
/// \throws DimensionMismatch if nested steps have no slot
/// \throws NotSupported if the schedule has no step, or offloads: that needs `OffloadedStates`
template <class Make, class Fill, class Run, class Gradient, class Reverse>
auto checkpointed(const RecomputeSchedule& schedule, const Make& make, const Fill& fill, const Run& run,
                  const Gradient& gradient, const Reverse& reverse) {
  using State = decltype(make());
  schedule.check("checkpointed");
  if (schedule.layers() < 1) throw NotSupported("kformer::checkpointed: the schedule has no step");
  if (std::ranges::count(schedule.kinds, Recompute::offload) > 0)
    throw NotSupported(
        "kformer::checkpointed: the schedule offloads, but callables do not say where states lie; use "
        "CheckpointedChain with OffloadedStates");
  std::vector<State> kept;
  for (std::int64_t i = 0; i < CheckpointedChain<State>::kept_states(schedule); ++i) kept.push_back(make());
  const CheckpointedChain<State> chain(schedule, kept);
  const State last = make(), dy = make(), other = make();
  const State scratch = schedule.nested_layers > 0 ? make() : State{};
  fill(chain.first());
  chain.forward(run, last, scratch);
  gradient(last, dy);
  return chain.backward(run, reverse, dy, other, scratch);
}

}  // namespace kformer
