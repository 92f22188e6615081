// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// \file
/// Loss scaling (Micikevicius et al., arXiv:1710.03740, §3.2): gradients that are stored in 16 bits are
/// computed from a loss multiplied by a scale, so that they do not underflow, and divided by it before they are
/// used.

namespace kformer {

/// How the loss scale is chosen.
struct LossScaling {
  double initial = 65536;               ///< the first scale
  double growth_factor = 2;             ///< what the scale is multiplied by after `growth_interval` good steps
  double backoff_factor = 0.5;          ///< what it is multiplied by after a step with gradients not finite
  std::int64_t growth_interval = 2000;  ///< good steps in a row before it grows; 0: the scale never changes
  double least = 1;                     ///< it does not fall below this
  double greatest = 16777216;           ///< it does not grow beyond this
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

  /// What the loss is to be multiplied by now.
  double scale() const { return m_scale; }

  /// Good steps since the scale last changed: with `scale()` the whole state, for checkpoints.
  std::int64_t good_steps() const { return m_good_steps; }

  /// Goes on from a checkpoint.
  /// \throws NotSupported if the scale is not between `least` and `greatest`, or `good_steps` is negative
  void restore(double scale, std::int64_t good_steps);

  /// To be called once per step with whether all gradients were finite. Returns whether the step counted: one
  /// with gradients not finite was skipped, and is to be made again with the scale as it is now.
  bool update(bool finite);

 private:
  LossScaling m_options;
  double m_scale;
  std::int64_t m_good_steps = 0;
};

}  // namespace kformer
