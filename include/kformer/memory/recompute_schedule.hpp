// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "kformer/core/types/recompute.hpp"

/// \file
/// What the layers of a model keep between forward and backward, and the optimal order of work where they keep
/// fewer inputs than there are layers. Free of Kokkos.

namespace kformer {

/// What the layers of a model keep between forward and backward. The first `nested_layers` layers keep
/// `nested_slots` inputs at a time (Revolve: Griewank and Walther 2000, algorithm 799,
/// doi:10.1145/347837.347846); of the others layer i keeps what `kinds[i - nested_layers]` says.
struct RecomputeSchedule {
  std::int64_t nested_layers = 0;  ///< layers of the nested run, the first ones
  std::int64_t nested_slots = 0;   ///< inputs that the nested run keeps at a time; its first input is one
  std::vector<Recompute> kinds;    ///< of the other layers: none, pointwise, layer or offload

  /// Layers of the model.
  std::int64_t layers() const { return nested_layers + static_cast<std::int64_t>(kinds.size()); }

  /// The schedule of a model whose `layers` layers have one policy.
  /// \param kind    any policy but `automatic`
  /// \param layers  of the model
  /// \param slots   of `nested`: inputs kept at a time, at most one per layer; 0: ⌈√layers⌉
  /// \throws NotSupported for `automatic`, which only the planner can resolve
  /// \throws DimensionMismatch if `layers` or `slots` are negative
  static RecomputeSchedule uniform(Recompute kind, std::int64_t layers, std::int64_t slots = 0);

  /// \param function the function that got the schedule, without `kformer::`
  /// \throws DimensionMismatch unless a nested run has at least one slot, and no slot is left without one
  void check(const char* function) const;
};

/// Forwards of single layers that a nested run repeats, besides the one that each layer's own backward needs.
/// The first forward through the run is not counted; the activations of its last layer do not last until backward.
///
///     0 for slots >= layers,   layers (layers - 1) / 2 for one slot,   otherwise
///     l t - β(slots + 1, t - 1) - layers,   l = layers + 1,   β(s, t) = (s + t)! / (s! t!),
///     with t such that β(slots, t - 1) < l <= β(slots, t)
///
/// No order of work repeats fewer. Where nothing overwrites the activations of the last layer before backward
/// begins, its own forward is free too, and the run repeats `revolve_forwards(layers - 1, slots)`.
/// Source: Griewank and Walther 2000 (doi:10.1145/347837.347846), proposition 1, for the run and what follows it.
/// \throws DimensionMismatch if there are layers and no slot
std::int64_t revolve_forwards(std::int64_t layers, std::int64_t slots);

/// How many layers to run from a kept input to the next one to keep, 1 <= result < layers:
///
///     reverse(first, layers, slots):   // the input of `first` is in one of the slots
///       if layers == 1: forward and backward of `first`
///       else: run `split` layers; keep the input of first + split;
///             reverse(first + split, layers - split, slots - 1); reverse(first, split, slots)
///
/// With one slot there is nowhere to keep: the result is layers - 1, and the input at hand is used at once. Of
/// the optimal splits this is the largest. It is optimal for the first forward through the run too, whether the
/// activations of the last layer then last until backward or not.
/// \throws DimensionMismatch if there are fewer than two layers or no slot
std::int64_t revolve_split(std::int64_t layers, std::int64_t slots);

}  // namespace kformer
