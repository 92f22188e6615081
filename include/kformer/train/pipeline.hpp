// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "kformer/parallel/pipeline_schedule.hpp"

/// \file
/// Ranks that divide the layers of a model in training.

namespace kformer {

class PipelineLinks;

/// Options of a pipeline: `TrainerOptions::pipeline`.
struct PipelineOptions {
  std::shared_ptr<PipelineLinks>
      ranks{};  ///< that divide the layers (`RankGrid::pipeline`); null: this one alone
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;  ///< in which order they work
  int parts = 1;                   ///< of the model on each rank, with `interleaved`
  std::int64_t micro_batches = 0;  ///< of this rank in a step, at most, which need memory; 0: any number
};

}  // namespace kformer
