// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kformer/core/types/policy_kind.hpp"

/// \file
/// Learning from completions that the policy sampled, and their advantages (docs/preferences.md). Free of Kokkos.

namespace kformer {

/// Options of `policy_loss`.
struct PolicyOptions {
  PolicyKind kind = PolicyKind::dapo;  ///< what losses are averaged over
  double epsilon_low = 0.2;            ///< ε_low ≥ 0: ratios below 1 − ε_low are clipped
  double epsilon_high = 0.2;           ///< ε_high ≥ 0: ratios above 1 + ε_high are clipped; DAPO has 0.28
  double delta = 0;  ///< δ > 1 + ε_high: no ratio counts as more, whatever its advantage; 0: no such limit
  double beta = 0;   ///< β ≥ 0: weight of the divergence from the reference; 0: there is none
  std::int64_t max_completion_tokens = 0;  ///< dr_grpo: the most tokens a completion may have
};

/// What one step averages over: all micro-batches of it.
struct PolicyBatch {
  std::int64_t completions = 0;  ///< grpo, dr_grpo: how many the step has
  double tokens = 0;  ///< bnpo: tokens of the step that count; dapo: those of a generation, divided by the
                      ///< number of steps that learn from it
};

/// The operands of `policy_loss`. Tokens of completions lie one after another, without prompts or padding.
struct PolicyLossOperands {
  std::span<const double> logp;  ///< (tokens) log π: minus what `LlamaModel::loss` returns, in nats
  std::span<const double>
      old_logp;  ///< (tokens) log π_old, of the policy that sampled them; empty: as `logp`, no
                 ///< step was made since
  std::span<const double> reference_logp;  ///< (tokens) log π_ref; empty unless β > 0
  std::span<const std::uint8_t> mask;      ///< (tokens) 0: the token does not count; empty: all do
  std::span<const std::int64_t>
      offsets;                         ///< (completions + 1) the first token of each, ascending from 0; the end
  std::span<const double> advantages;  ///< (completions) A: `group_advantages`
};

/// Counts and sums over the tokens that count. Those of micro-batches add up.
struct PolicyStatistics {
  std::int64_t tokens = 0;        ///< how many count
  std::int64_t clipped_low = 0;   ///< ratio below 1 − ε_low, advantage negative
  std::int64_t clipped_high = 0;  ///< ratio above 1 + ε_high, advantage positive
  double ratio_sum = 0;           ///< Σ π/π_old
  double kl_sum = 0;              ///< Σ k3, the estimate of KL(π ‖ π_ref); 0 unless β > 0

  /// The share of tokens that are clipped from below; 0 if there are none.
  double low_clip_fraction() const { return mean(static_cast<double>(clipped_low)); }
  /// The share of tokens that are clipped from above.
  double high_clip_fraction() const { return mean(static_cast<double>(clipped_high)); }
  /// The mean of the ratio; exactly 1 where the policy has not changed.
  double mean_ratio() const { return mean(ratio_sum); }
  /// The mean of k3, in nats.
  double mean_kl() const { return mean(kl_sum); }

  /// Adds those of another micro-batch.
  PolicyStatistics& operator+=(const PolicyStatistics& other);

 private:
  double mean(double sum) const { return tokens > 0 ? sum / static_cast<double>(tokens) : 0; }
};

/// The result of `policy_loss`.
struct PolicyLoss {
  double loss = 0;  ///< L of the micro-batch; those of all micro-batches add up to that of the step
  std::vector<double>
      dlogp;  ///< (tokens) ∂L/∂ log π; 0 where the mask is. `dloss` of `LlamaModel` is minus this
  PolicyStatistics statistics;  ///< of the micro-batch
};

/// What to average over if these completions are the whole batch of a step, and dapo learns from them once. The
/// numbers of several micro-batches are to be added.
/// \param operands offsets and mask
/// \throws DimensionMismatch as policy_loss
PolicyBatch policy_batch(const PolicyLossOperands& operands);

/// Group relative policy optimisation and its relatives (Shao et al., arXiv:2402.03300, eq. 3; DAPO: Yu et al.,
/// arXiv:2503.14476, eq. 8; Dr. GRPO: Liu et al., arXiv:2503.20783). Of a token, with r = π/π_old and
/// d = log π_ref − log π,
///
///     ℓ = −min(min(r, δ)·A, clamp(r, 1 − ε_low, 1 + ε_high)·A) + β·(exp(d) − d − 1)
///
/// (δ: arXiv:2505.07291; the last term is k3 of Schulman 2020). The losses of the tokens that count are averaged as
/// TRL's `GRPOTrainer` does it:
///
///     L = 1/completions · Σ_i 1/max(1, n_i) · Σ_t ℓ_it         grpo, with n_i tokens of completion i that count
///     L = 1/(completions · max_completion_tokens) · Σ_it ℓ_it   dr_grpo
///     L = 1/tokens · Σ_it ℓ_it                                  dapo, bnpo
///
/// where completions and tokens are those of the step (`PolicyBatch`), so that micro-batches of any size add up to the
/// same. TRL averages bnpo over each micro-batch and then over those: for that, pass as tokens those of the micro-batch
/// times the number of micro-batches.
///
/// Where a token is clipped its derivative is that of the divergence alone. r is exactly 1 where log π = log π_old.
/// Exponentials of more than 300 continue as their tangents: nothing overflows, and the derivative stays that of L.
/// \param operands log-probabilities, mask, completions, advantages
/// \param options  kind, ε, δ, β
/// \param batch    what to average over: of `policy_batch`, added up
/// \throws NotSupported if an option is out of range, or naming a token that counts and has a log-probability that is
///         not finite, or a completion with such an advantage. Tokens that do not count are not read
/// \throws DimensionMismatch if extents do not match, or the batch has fewer completions or tokens than the micro-batch
PolicyLoss policy_loss(const PolicyLossOperands& operands, const PolicyOptions& options,
                       const PolicyBatch& batch);

/// The same if these completions are the whole batch of a step.
/// \param operands log-probabilities, mask, completions, advantages
/// \param options  kind, ε, δ, β
/// \throws NotSupported as above
/// \throws DimensionMismatch as above
PolicyLoss policy_loss(const PolicyLossOperands& operands, const PolicyOptions& options = {});

}  // namespace kformer
