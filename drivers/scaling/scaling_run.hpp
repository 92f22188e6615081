// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

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
  StepShape shape_of(const PlanParallelTable& grid, const RankGrid& ranks, const LearnerTask& task) const;
  std::vector<StepShape> stages_of(const PlanParallelTable& grid) const;
  std::string timed(const PlanParallelTable& grid, const std::shared_ptr<Communicator>& team) const;
  // Why a grid does not fit into memory, or why there is no simulation.
  struct Room {
    std::string refusal, note;
  };
  Room room_for(const Ledger& work, const Ledger& besides, Communicator& team) const;
  void add_report(const nlohmann::json& report, GridResult& result) const;
  double cores_of(const PlanParallelTable& grid) const;
  std::int64_t busy_ranks(const PlanParallelTable& grid) const;

  const ScalingDeck& m_deck;
  std::string m_space;
  Ranks& m_ranks;
  LlamaConfig m_config;
};

}  // namespace kformer::drivers
