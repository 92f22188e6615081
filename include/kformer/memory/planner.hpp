// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kformer/memory/recompute_schedule.hpp"

/// \file
/// The planner of recomputation: which schedules of equal layers are worth having, and which fits a budget.
/// Free of Kokkos.

namespace kformer {

/// What a layer costs under each policy, for one batch on one machine. All layers of a model cost the same.
struct RecomputeCosts {
  std::size_t input_bytes = 0;      ///< the layer's input
  std::size_t none_bytes = 0;       ///< what the layer keeps under `none`, besides its input
  std::size_t pointwise_bytes = 0;  ///< what the layer keeps under `pointwise`, besides its input
  /// The arrays that recomputed layers (`layer`, `nested`, `offload`) share, there once if there is such a layer.
  std::size_t working_bytes = 0;
  double pointwise_seconds = 0;  ///< extra time of `pointwise`
  double forward_seconds = 0;    ///< of running a layer again
  bool offload = false;          ///< whether inputs can move to host memory
  double offload_seconds = 0;    ///< of moving an input there and back, as far as it does not overlap
  std::size_t nested_bytes = 0;  ///< there once if there is a nested run: inputs on their way through it
  /// There once if any layer is offloaded: inputs on their way to the host and back.
  std::size_t offload_bytes = 0;
  bool rerun = true;   ///< whether layers can run again; otherwise each is `none` or `pointwise`
  bool nested = true;  ///< whether a run of them can be nested
};

/// A schedule, and what it costs by RecomputeCosts.
struct RecomputePlan {
  RecomputeSchedule schedule;  ///< of all layers
  std::size_t bytes = 0;  ///< kept between forward and backward, and shared by the layers that are recomputed
  double seconds = 0;     ///< beyond a step that recomputes nothing
};

/// The plans that no other plan beats in both bytes and seconds, fewest bytes first, each faster than the one
/// before it. Exact: a dynamic programme over layers, on Pareto fronts. The costs of a plan are sums:
///
///     none       none_bytes + input_bytes         0 s
///     pointwise  pointwise_bytes + input_bytes    pointwise_seconds
///     layer      input_bytes                      forward_seconds
///     offload    0 (device memory)                forward_seconds + offload_seconds
///     nested     slots input_bytes                (layers + revolve_forwards(layers, slots)) forward_seconds
///     once       working_bytes                    if there is a layer of the last three; nested_bytes and
///                                                 offload_bytes alike
///
/// The last layer of these three still has its activations in the shared arrays when backward reaches it, for
/// layers that keep their own do not write there. So its own forward costs nothing; if it ends a nested run, the
/// run takes layers - 1 + revolve_forwards(layers - 1, slots) forwards. In a plan the layers of a kind follow one
/// another: nested, layer, offload, none, pointwise.
///
/// \param layers  of the model
/// \param costs   of each of them; bytes are exact in a plan, seconds as good as these
std::vector<RecomputePlan> recompute_front(std::int64_t layers, const RecomputeCosts& costs);

/// The seconds of a schedule by the rules of `recompute_front`, whose plans have the same bits: the time that
/// recomputation adds to a step.
///
///     pointwise_seconds · layers `pointwise` + offload_seconds · layers `offload` + forward_seconds · forwards
///
/// with the forwards of `layer`, `offload` and the nested run, less the one that is free.
/// \param schedule of all layers, in any order behind the nested run
/// \param costs    of each layer
/// \throws NotSupported if `kinds` has a policy that does not apply to a single layer
double recompute_seconds(const RecomputeSchedule& schedule, const RecomputeCosts& costs);

/// The fastest plan of `front` that needs at most `budget` bytes; its time does not rise with the budget.
/// \param front   of recompute_front; the result refers to it
/// \param budget  bytes for what a plan counts
/// \throws OutOfMemory naming the least budget that would do
const RecomputePlan& best_plan(const std::vector<RecomputePlan>& front, std::size_t budget);

}  // namespace kformer
