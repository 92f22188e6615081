// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "decks/memory_plan_deck.hpp"
#include "kformer/memory/ledger.hpp"

namespace kformer::drivers {

/// What a case would take of memory.
struct MemoryForecast {
  std::array<std::size_t, memory_classes> bytes{};  ///< most bytes of each class at once
  std::size_t total = 0;                            ///< peak bytes of all classes together
};

/// Counts what a model needs, without taking it.
class MemoryPlanner {
 public:
  virtual ~MemoryPlanner() = default;
  /// The model, from the deck or its checkpoint. Works without Kokkos::initialize.
  virtual const LanguageModelTable& model() const = 0;
  /// What a case takes.
  /// \throws Error if no kernel or cache can do it
  virtual MemoryForecast forecast(const MemoryCase& point) = 0;
};

/// The planner of a deck. Works without Kokkos::initialize.
/// \throws FileError if the checkpoint of [weights] cannot be read
std::unique_ptr<MemoryPlanner> make_memory_planner(const MemoryPlanDeck& deck);

}  // namespace kformer::drivers
