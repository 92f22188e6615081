// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kformer/core/enum_names.hpp"

/// \file
/// In which order the stages of a pipeline work on micro-batches. Free of Kokkos.

namespace kformer {

/// The orders of `pipeline_work`.
enum class PipelineSchedule {
  one_forward_one_backward,  ///< 1F1B: Narayanan et al., arXiv:2006.09503
  interleaved,               ///< each rank has several parts of the model, which take turns: Narayanan et al.,
                             ///< arXiv:2104.04473, section 2.2
  zero_bubble  ///< ZB-H1: gradients of weights wait until a rank would idle: Qi et al., arXiv:2401.10241
};

/// The names of the schedules.
template <>
inline constexpr std::array<std::string_view, 3> names_of<PipelineSchedule> = {"1f1b", "interleaved",
                                                                               "zero_bubble"};

/// What a rank does with a micro-batch.
enum class PipelineWork {
  forward,   ///< from the inputs of a part of the model to its outputs
  backward,  ///< from the gradients of the outputs to those of the inputs; of the weights, too, unless
             ///< `weights` follows
  weights    ///< the gradients of the weights
};

/// Whether the gradients of weights are work of their own.
constexpr bool splits_backward(PipelineSchedule schedule) { return schedule == PipelineSchedule::zero_bubble; }

/// What ends a micro-batch in a part.
constexpr PipelineWork last_work(PipelineSchedule schedule) {
  return splits_backward(schedule) ? PipelineWork::weights : PipelineWork::backward;
}

/// One piece of work of a rank.
struct PipelineTask {
  PipelineWork work = PipelineWork::forward;  ///< what is done
  int part = 0;                               ///< with which of the rank's parts of the model
  std::int64_t micro_batch = 0;               ///< on which micro-batch, from 0
  /// Whether all are equal.
  bool operator==(const PipelineTask&) const = default;
};

/// A pipeline of ranks. Rank r has the parts r, r + ranks, r + 2 ranks, … of the model.
struct PipelineShape {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;  ///< the order of the work
  int ranks = 1;                                                           ///< of the pipeline
  int parts = 1;  ///< of the model on each rank; more than one with `interleaved` alone

  /// \throws NotSupported if a number is less than 1, or `parts` does not go with the schedule
  void check() const;
  /// Whether all are equal.
  bool operator==(const PipelineShape&) const = default;
};

/// What a rank does in a step, in this order.
///
/// - 1F1B: rank r of p begins with min(m, p − 1 − r) forwards, and then makes a forward and a backward in turns.
/// - Interleaved with v parts: the same on groups of p micro-batches, which go through all parts before the next group
///   comes; 2 (p − 1 − r) + (v − 1) p forwards come first.
/// - Zero bubble: 1F1B, where the gradients of weights of the last r micro-batches wait, so that the first ranks get
///   their gradients earlier and the last ones have work at the end. All keep p micro-batches.
///
/// With equal times of all work of a part, f + b + w, ranks idle for (p − 1) (f + b + w), (p − 1) (f + b + w) (of parts that
/// are 1/v as long) and (p − 1) (f + b − w).
/// \param shape         the pipeline
/// \param rank          of it
/// \param micro_batches m, at least 0
/// \throws NotSupported as `PipelineShape::check`, or if there is no such rank
std::vector<PipelineTask> pipeline_work(const PipelineShape& shape, int rank, std::int64_t micro_batches);

/// How many micro-batches have gone forward through a part of a rank, and are not finished, at most.
std::int64_t pipeline_slots(const PipelineShape& shape, int rank, int part, std::int64_t micro_batches);

/// How many messages from the last part to the first, one after each backward, must be under way at a time, so that ranks do
/// not wait for each other for ever: with `interleaved` as many as there are ranks, because the last part goes through a group
/// of micro-batches before the first has one; otherwise 1. No schedule but 1F1B and zero bubble on more than three ranks takes
/// longer for them.
std::int64_t pipeline_tied_messages(const PipelineShape& shape);

/// Seconds that a part takes for a micro-batch.
struct PipelineTimes {
  double forward = 1;   ///< of `PipelineWork::forward`
  double backward = 1;  ///< of the gradients of inputs
  double weights = 1;   ///< of the gradients of weights
};

/// When a step is over, if every part takes as long, and messages no time. A rank sends a message when the one before it, to
/// the same rank in the same direction, has been received.
/// \param shape         the pipeline
/// \param micro_batches of a step
/// \param times         of the work
/// \param tied_messages how many messages from the last part to the first, one after each backward, may be under way; 0:
///                      there are none
/// \throws NotSupported as `pipeline_work`, or if the ranks would wait for each other for ever
double pipeline_makespan(const PipelineShape& shape, std::int64_t micro_batches, const PipelineTimes& times,
                         std::int64_t tied_messages = 0);

}  // namespace kformer
