// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "decks/scaling/scaling_deck.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "learner/learner.hpp"
#include "scaling/step_program.hpp"
#include "scaling/timing.hpp"
#include "scaling/workload.hpp"

namespace kformer::drivers {

/// Sequences of tokens drawn at random.
std::vector<TokenSequence> random_sequences(const ScalingDeck& deck, std::int64_t count);

/// What the simulation of a grid is made from, measured on its ranks: kernels of a rank without messages, and exchanges along
/// each axis.
///
/// A layer is timed alone. Steps of one and of three micro-batches give the rest of a micro-batch, and the update. They are
/// of a model with as many layers as a stage, on a grid of ranks that send nothing: so a rank does all that it does beside its
/// messages, with its own part of tokens, heads and words. A link is what messages add to exchanges.
class GridProbes {
 public:
  /// All ranks of the grid make the call.
  /// \param busy   how many of them compute at a time
  /// \param ledger one that only counts forecasts the memory; then nothing can be called
  GridProbes(const ScalingDeck& deck, const std::string& space, const PlanParallelTable& grid,
             const RankGrid& ranks, const StepShape& step, std::int64_t busy,
             const std::shared_ptr<Ledger>& ledger);

  /// What is to be timed. They last as long as this object.
  std::vector<std::function<void()>> calls();
  /// From the samples of the calls.
  KernelTimes times(std::span<const TurnSamples> samples) const;
  /// From the samples of the calls.
  Links links(std::span<const TurnSamples> samples) const;

 private:
  void connect(const RankGrid& ranks, const StepShape& step, const std::string& space,
               const std::shared_ptr<Ledger>& ledger);

  // An axis with several ranks, and how they exchange.
  struct Axis {
    CallAxis axis;
    int ranks;
    std::size_t bytes;                  // of a message
    std::unique_ptr<LinkBench> bench;   // null: this rank has no neighbour
    std::unique_ptr<LinkBench> silent;  // the same without messages; null: that is no part of the kernels
  };
  // What is timed, with how many bytes.
  static std::vector<std::pair<std::size_t, LinkUse>> uses_of(const Axis& axis);

  std::int64_t m_busy, m_layers;
  double m_elements = 0;  // that a step of the model updates
  bool m_computes, m_splits, m_wait;
  std::unique_ptr<LayerBench> m_layer;
  std::unique_ptr<Learner> m_learner;
  std::array<std::vector<TokenSequence>, 2> m_steps;  // of one and of three micro-batches
  std::vector<Axis> m_axes;
};

}  // namespace kformer::drivers
