// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decks/memory/memory_plan_deck.hpp"
#include "kformer/memory/ledger.hpp"
#include "memory/step_estimate.hpp"

namespace kformer::drivers {

/// The memory that a case would need.
struct MemoryForecast {
  std::array<std::size_t, memory_classes> bytes{};  ///< most bytes of each class at once
  std::size_t total = 0;                            ///< peak bytes of all classes together
  std::size_t bytes_in_space = 0;  ///< peak bytes in the memory of the execution space, which limits are for
  std::string schedule;            ///< in training: what layers keep, in words
  std::size_t scratch = 0;         ///< bytes of scratch memory with as many threads, in none of these
  double recompute_share = 0;      ///< estimated time of recomputation over forward and backward
};

/// A grid of ranks for a training.
struct GridForecast {
  PlanParallelTable grid;  ///< the ranks
  std::size_t bytes = 0;   ///< peak in the memory of the execution space, of the rank that needs most
  StepBytes sent;          ///< by a rank in a step
  StepSeconds seconds;     ///< of a step
};

/// The values of an axis that a case can have: multiples of `step`, from `least` on.
struct AxisRange {
  std::int64_t least = 1;  ///< no value is less
  std::int64_t step = 1;   ///< divides all values

  /// Value number `n`, from 1; 0 for none.
  std::int64_t value(std::int64_t n) const { return n == 0 ? 0 : ((least + step - 1) / step + n - 1) * step; }
  /// How many are at most `most`.
  std::int64_t count(std::int64_t most) const { return most < value(1) ? 0 : (most - value(1)) / step + 1; }
};

/// Counts the memory that a model needs, without allocating it.
class MemoryPlanner {
 public:
  virtual ~MemoryPlanner() = default;
  /// The model, from the deck or its checkpoint. Works without Kokkos::initialize.
  virtual const LanguageModelTable& model() const = 0;
  /// The memory of a case.
  /// \param point the case
  /// \param limit bytes that `recompute = auto` may take; nothing: no limit
  /// \throws Error if no kernel or cache supports it
  virtual MemoryForecast forecast(const MemoryCase& point, std::optional<std::size_t> limit) = 0;
  /// The contexts that cases like this one can have, as far as the deck says; the kernels may refuse some.
  virtual AxisRange contexts(const MemoryCase& point) const = 0;
  /// The grids of [grids] that a training can have, those first that fit, by the time of a step, then the others by memory.
  /// \param point the case, of purpose train
  /// \param limit bytes of a rank; nothing: no limit
  virtual std::vector<GridForecast> grids(const MemoryCase& point, std::optional<std::size_t> limit) = 0;
};

/// The planner of a deck. Works without Kokkos::initialize.
/// \throws FileError if the checkpoint of [weights] cannot be read
std::unique_ptr<MemoryPlanner> make_memory_planner(const MemoryPlanDeck& deck);

}  // namespace kformer::drivers
