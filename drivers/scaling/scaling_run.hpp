// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "app/ranks.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "learner/learner.hpp"
#include "scaling/grid_result.hpp"

namespace kformer::drivers {

/// Runs grids on the first of some ranks.
class ScalingRun {
 public:
  /// \param space name of the execution space
  ScalingRun(const ScalingDeck& deck, std::string space, Ranks& ranks);

  /// Runs a grid. All ranks call it, and all have its result; those that are not in the grid wait.
  /// \throws CommunicationError if a rank does not answer in time
  GridResult run(const PlanParallelTable& grid);

  /// A step on the machine of the deck, on ranks that need not be there.
  GridResult simulated(const PlanParallelTable& grid) const;

  /// Why a grid cannot run on these ranks: a sentence, or nothing.
  std::string refusal(const PlanParallelTable& grid) const;

 private:
  LearnerTask task_of(const PlanParallelTable& grid, const RankGrid& ranks) const;
  LearnerTask lone_task(const PlanParallelTable& grid) const;
  StepShape shape_of(const PlanParallelTable& grid, const RankGrid& ranks, const LearnerTask& task) const;
  std::vector<TokenSequence> sequences(std::int64_t count) const;
  std::string timed(const PlanParallelTable& grid, const std::shared_ptr<Communicator>& team) const;
  double cores_of(const PlanParallelTable& grid) const;
  KernelTimes kernel_times(const PlanParallelTable& grid, Communicator& team) const;
  KernelTimes own_kernel_times(const PlanParallelTable& grid) const;
  Link link_among(const std::shared_ptr<Communicator>& ranks, std::size_t bytes, Communicator& team) const;
  Links links_of(const RankGrid& ranks, const StepShape& step) const;

  const ScalingDeck& m_deck;
  std::string m_space;
  Ranks& m_ranks;
  LlamaConfig m_config;
};

}  // namespace kformer::drivers
