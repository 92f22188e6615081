// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

/// \file
/// Finds steps whose loss or gradient norm is far from recent values. Free of Kokkos.

namespace kformer {

/// Options of `LossSpikes`.
struct LossSpikeOptions {
  double loss_z = 0;  ///< a step whose loss has a z-score above it is a spike; 0: losses are not checked
  double norm_z = 0;  ///< the same for the norm of the gradient
  std::int64_t window = 128;  ///< steps that a step is compared with, at least 2

  /// Whether anything is checked.
  bool enabled() const { return loss_z > 0 || norm_z > 0; }
};

/// Finds loss spikes as llm.c does (`outlier_detector.h`): by the z-score (x − mean)/σ among the last steps, as
/// soon as there are enough of them. Unlike there, the step itself is not among them. Skipped steps are: where losses
/// or norms stay higher than they were, they become what the next steps are compared with, and training goes on.
class LossSpikes {
 public:
  /// \throws NotSupported if an option is out of range
  explicit LossSpikes(const LossSpikeOptions& options = {});

  /// Whether to accept a step with this loss and gradient norm. Later steps are compared with it, accepted or not.
  /// A number that is not finite is always a spike, and no step is compared with it. Always true if nothing is
  /// enabled.
  bool accept(double loss, double norm);

  /// The losses of the steps of the window, oldest first: with `norms` the whole state, for checkpoints.
  const std::vector<double>& losses() const { return m_losses; }
  /// The gradient norms of the same steps.
  const std::vector<double>& norms() const { return m_norms; }
  /// Restores the state from a checkpoint; of a longer window the newest steps.
  /// \throws NotSupported if there are not as many norms as losses
  void restore(std::vector<double> losses, std::vector<double> norms);

 private:
  bool is_spike(const std::vector<double>& window, double value, double limit) const;

  LossSpikeOptions m_options;
  std::vector<double> m_losses, m_norms;
};

}  // namespace kformer
