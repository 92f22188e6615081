// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// \file
/// Loss scaling (Micikevicius et al., arXiv:1710.03740, §3.2): gradients that are stored in 16 bits are
/// computed from a loss multiplied by a scale, so that they do not underflow, and divided by it before they are
/// used.

namespace kformer {

/// Options of the loss scale.
struct LossScaling {
  double initial = 65536;               ///< the first scale
  double growth_factor = 2;             ///< factor on the scale after `growth_interval` good steps
  double backoff_factor = 0.5;          ///< factor after a step whose gradients are not finite
  std::int64_t growth_interval = 2000;  ///< consecutive good steps before it grows; 0: the scale never changes
  double least = 1;                     ///< lower bound
  double greatest = 16777216;           ///< upper bound
};

/// A loss scale that follows the gradients: it grows as long as they stay finite and backs off when they do
/// not.
///
///     backward from dloss · scale.scale();  gradient_norm(...);
///     adamw(..., {.step = steps + 1, .gradient_scale = 1 / scale.scale()});
///     if (scale.update(std::isfinite(norm))) ++steps;
///
/// Factors that are powers of two keep the scaling itself exact.
class DynamicLossScale {
 public:
  /// Starts at `options.initial`.
  /// \throws NotSupported if an option is out of range
  explicit DynamicLossScale(const LossScaling& options = {});

  /// The current factor on the loss.
  double scale() const { return m_scale; }

  /// Good steps since the scale last changed: with `scale()` the whole state, for checkpoints.
  std::int64_t good_steps() const { return m_good_steps; }

  /// Restores the state from a checkpoint.
  /// \throws NotSupported if the scale is not between `least` and `greatest`, or `good_steps` is negative
  void restore(double scale, std::int64_t good_steps);

  /// Call once per step with whether all gradients were finite. Returns whether the step counted: a step
  /// whose gradients are not finite was skipped; repeat it with the new scale.
  bool update(bool finite);

 private:
  LossScaling m_options;
  double m_scale;
  std::int64_t m_good_steps = 0;
};

}  // namespace kformer
