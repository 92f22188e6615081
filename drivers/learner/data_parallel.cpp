// SPDX-License-Identifier: MIT
#include "learner/data_parallel.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace kformer::drivers {

RankGrid grid_of(const std::shared_ptr<Communicator>& world, const PlanParallelTable* table, int stage) {
  const PlanParallelTable one, &t = table == nullptr ? one : *table;
  const GridIndex shape{.data = static_cast<int>(t.data),
                        .context = static_cast<int>(t.context),
                        .tensor = static_cast<int>(t.tensor),
                        .pipeline = static_cast<int>(t.pipeline)};
  const int size = static_cast<int>(t.ranks()), rank = stage * size / shape.pipeline;
  return {world->size() == size && stage == 0 ? world : std::make_shared<LoneCommunicator>(rank, size), shape};
}

namespace {

// All ranks under their own name, which errors and the log then have.
const std::shared_ptr<Communicator>& ranks_along(const RankGrid& grid, GridAxis axis) {
  return grid.shape().along(axis) == grid.world()->size() ? grid.world() : grid.along(axis);
}

}  // namespace

void share_among(const RankGrid& grid, const PlanParallelTable& table, std::int64_t micro_batches,
                 LearnerTask& task) {
  if (table.tensor > 1) task.trainer.layer.tensor = ranks_along(grid, GridAxis::tensor);
  task.trainer.layer.sequence_parallel = table.sequence;
  if (table.context > 1) task.trainer.layer.context = ranks_along(grid, GridAxis::context);
  task.trainer.layer.context_exchange = table.context_exchange;
  DataParallelOptions& options = task.trainer.parallel;
  options.ranks = table.context > 1 ? grid.replicas() : ranks_along(grid, GridAxis::data);
  options.zero = static_cast<ZeroStage>(table.zero);
  options.overlap = table.overlap;
  options.bucket_bytes = static_cast<std::size_t>(table.bucket_mib) << 20;
  options.fixed_order = table.order == SumOrder::fixed;
  options.micro_batches = LeafShares{micro_batches, grid.shape().data}.each();
  if (table.pipeline > 1)
    task.trainer.pipeline = {.ranks = grid.pipeline(),
                             .schedule = table.schedule,
                             .parts = static_cast<int>(table.parts),
                             .micro_batches = options.micro_batches};
  // No rank samples more completions than it learns from.
  if (task.sampler)
    task.sampler->batch = std::min(task.sampler->batch, options.micro_batches * task.trainer.shape.batch);
  // A rank with one micro-batch overwrites its gradients.
  if (micro_batches > 1 && options.micro_batches == 1) task.trainer.layer.accumulate = false;
  if (!task.checkpoints) return;
  task.checkpoints->rank = grid.world()->rank();
  task.checkpoints->ranks = grid.world()->size();
}

MemoryDecision of_largest_stage(const PlanParallelTable* table, std::int64_t micro_batches,
                                const LearnerTask& task,
                                const std::function<MemoryDecision(const LearnerTask&)>& decide) {
  if (table == nullptr) return decide(task);
  std::optional<MemoryDecision> largest;
  for (int stage = 0; stage < table->pipeline; ++stage) {
    LearnerTask shared = task;
    share_among(grid_of(std::make_shared<LoneCommunicator>(), table, stage), *table, micro_batches, shared);
    MemoryDecision decision = decide(shared);
    if (!largest || decision.bytes_in_space > largest->bytes_in_space) largest = std::move(decision);
  }
  return *std::move(largest);
}

}  // namespace kformer::drivers
