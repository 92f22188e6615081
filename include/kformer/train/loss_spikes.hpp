// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

/// \file
/// Steps whose loss or gradient is far from what it was lately. Free of Kokkos.

namespace kformer {

/// Options of `LossSpikes`.
struct LossSpikeOptions {
  double loss_z = 0;  ///< a step whose loss has a z-score above it is a spike; 0: the loss is not looked at
  double norm_z = 0;  ///< the same for the norm of the gradient
  std::int64_t window = 128;  ///< accepted steps that a step is compared with, at least 2

  /// Whether steps are looked at at all.
  bool enabled() const { return loss_z > 0 || norm_z > 0; }
};

/// Finds loss spikes as llm.c does (`outlier_detector.h`): by the z-score (x − mean)/σ among the last steps, as
/// soon as there are enough of them. Other than there, a step is compared with the steps before it, and those
/// that were skipped do not count: they neither hide nor excuse the next spike.
class LossSpikes {
 public:
  /// \throws NotSupported if an option is out of range
  explicit LossSpikes(const LossSpikeOptions& options = {});

  /// Whether to do a step with this loss and gradient norm. If so, it is one of those that the next are compared
  /// with. Numbers that are not finite are spikes at any time. Always true if nothing is enabled.
  bool accept(double loss, double norm);

  /// The losses of the accepted steps of the window, oldest first: with `norms` the whole state, for checkpoints.
  const std::vector<double>& losses() const { return m_losses; }
  /// The gradient norms of the same steps.
  const std::vector<double>& norms() const { return m_norms; }
  /// Restores the state from a checkpoint.
  /// \throws NotSupported if there are not as many norms as losses, or more than the window holds
  void restore(std::vector<double> losses, std::vector<double> norms);

 private:
  bool is_spike(const std::vector<double>& window, double value, double limit) const;

  LossSpikeOptions m_options;
  std::vector<double> m_losses, m_norms;
};

}  // namespace kformer
