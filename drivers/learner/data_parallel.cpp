// SPDX-License-Identifier: MIT
#include "learner/data_parallel.hpp"

namespace kformer::drivers {

void share_among(const std::shared_ptr<Communicator>& ranks, const PlanParallelTable& table,
                 std::int64_t micro_batches, LearnerTask& task) {
  DataParallelOptions& options = task.trainer.parallel;
  options.ranks = ranks;
  options.zero = static_cast<ZeroStage>(table.zero);
  options.overlap = table.overlap;
  options.bucket_bytes = static_cast<std::size_t>(table.bucket_mib) << 20;
  options.fixed_order = table.order == SumOrder::fixed;
  options.micro_batches = LeafShares{micro_batches, ranks->size()}.each();
  // A rank with one micro-batch overwrites its gradients.
  if (micro_batches > 1 && options.micro_batches == 1) task.trainer.layer.accumulate = false;
  if (!task.checkpoints) return;
  task.checkpoints->rank = ranks->rank();
  task.checkpoints->ranks = ranks->size();
}

}  // namespace kformer::drivers
