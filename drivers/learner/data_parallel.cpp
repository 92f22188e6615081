// SPDX-License-Identifier: MIT
#include "learner/data_parallel.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace kformer::drivers {

RankGrid grid_of(const std::shared_ptr<Communicator>& world, const PlanParallelTable* table, int rank) {
  const PlanParallelTable one, &t = table == nullptr ? one : *table;
  const GridIndex shape{.data = static_cast<int>(t.data),
                        .context = static_cast<int>(t.context),
                        .tensor = static_cast<int>(t.tensor),
                        .pipeline = static_cast<int>(t.pipeline)};
  const int size = static_cast<int>(t.ranks());
  return {world->size() == size && rank == 0 ? world : std::make_shared<LoneCommunicator>(rank, size), shape};
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

namespace {

// Of the ranks of a stage that divide the first model and its tokens, those among which one needs most. Where ranks of
// `tensor` do not divide the words, the last has one more than the first, which gathers what is written; no other needs more
// than one of these. Of those of `context` the first looks at most keys, but of ZeRO and of a checkpoint each has a shard of its own.
std::vector<LearnerTask> largest_of_stage(const PlanParallelTable& table, std::int64_t stage,
                                          std::int64_t micro_batches, const LearnerTask& task) {
  const std::int64_t first = stage * table.data * table.context * table.tensor,
                     contexts = table.zero > 0 || task.checkpoints ? table.context : 1,
                     step = std::max<std::int64_t>(1, table.tensor - 1),
                     ends = task.config.vocab_size % table.tensor == 0 ? 1 : table.tensor;
  std::vector<LearnerTask> ranks;
  for (std::int64_t context = 0; context < contexts; ++context)
    for (std::int64_t tensor = 0; tensor < ends; tensor += step) {
      const auto rank = static_cast<int>(first + context * table.tensor + tensor);
      ranks.push_back(task);
      share_among(grid_of(std::make_shared<LoneCommunicator>(), &table, rank), table, micro_batches,
                  ranks.back());
    }
  return ranks;
}

}  // namespace

MemoryDecision of_largest_rank(const PlanParallelTable* table, std::int64_t micro_batches,
                               const LearnerTask& task,
                               const std::function<MemoryDecision(std::vector<LearnerTask>)>& decide) {
  if (table == nullptr) return decide({task});
  std::optional<MemoryDecision> largest;
  for (std::int64_t stage = 0; stage < table->pipeline; ++stage) {
    MemoryDecision decision = decide(largest_of_stage(*table, stage, micro_batches, task));
    if (!largest || decision.bytes_in_space > largest->bytes_in_space) largest = std::move(decision);
  }
  return *std::move(largest);
}

}  // namespace kformer::drivers
