// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kformer/core/types/preference_kind.hpp"
#include "kformer/train/objective.hpp"

/// \file
/// Learning from pairs of completions, of which people chose one (docs/preferences.md). Free of Kokkos.

namespace kformer {

/// Options of `preference_loss`.
struct PreferenceOptions {
  PreferenceKind kind = PreferenceKind::sigmoid;  ///< what is minimised
  double beta = 0.1;  ///< β > 0: how much a departure from the reference counts; τ in the paper of IPO
  double label_smoothing =
      0;  ///< ε in [0, 0.5): the probability that a pair is in the wrong order; sigmoid only
};

/// A completion as two models see it. Its first token is the first after the prompt, its last the one that ends it.
struct CompletionLogp {
  double policy = 0;        ///< Σ log π of its tokens: minus the sum of what `LlamaModel::loss` returns
  double reference = 0;     ///< Σ log π_ref of its tokens, of the model that training began with
  std::int64_t tokens = 0;  ///< how many there are; ipo only
};

/// Two completions of one prompt.
struct PreferencePair {
  CompletionLogp chosen;    ///< the better one
  CompletionLogp rejected;  ///< the worse one
};

/// What `preference_loss` computes of a pair.
struct PreferenceTerm {
  double loss = 0;             ///< ℓ, in nats for sigmoid
  double chosen_reward = 0;    ///< β·(log π − log π_ref) of the chosen completion, in nats
  double rejected_reward = 0;  ///< the same of the rejected one
  double dchosen = 0;  ///< ∂L/∂ log π of each token of the chosen completion: `dloss` is minus this, where its
                       ///< tokens are targets
  double drejected = 0;  ///< the same of the rejected one

  /// By how much the reward of the chosen completion is higher.
  double margin() const { return chosen_reward - rejected_reward; }
};

/// The result of `preference_loss`. All means are over the pairs of the batch: those of its micro-batches add up to
/// those of the whole.
struct PreferenceLoss {
  double loss = 0;                    ///< L, the mean of ℓ
  double accuracy = 0;                ///< the share of pairs whose chosen completion has the higher reward
  double margin = 0;                  ///< the mean of `PreferenceTerm::margin`
  double chosen_reward = 0;           ///< the mean of `PreferenceTerm::chosen_reward`
  double rejected_reward = 0;         ///< the mean of `PreferenceTerm::rejected_reward`
  std::vector<PreferenceTerm> pairs;  ///< one for each pair
};

/// Direct preference optimisation (Rafailov et al., arXiv:2305.18290, eq. 7) and its relatives. With
/// Δ = log π − log π_ref of a completion, n its tokens (at least 1), and h = Δ_chosen − Δ_rejected,
///
///     ℓ = −(1 − ε)·log σ(βh) − ε·log σ(−βh)                     sigmoid (ε: Mitchell 2023, cDPO)
///     ℓ = (Δ_chosen/n_chosen − Δ_rejected/n_rejected − 1/(2β))²  ipo (Azar et al., arXiv:2310.12036, eq. 17)
///     ℓ = max(0, 1 − βh)                                         hinge (Liu et al., arXiv:2309.06657)
///
/// and L = Σ ℓ / batch_pairs. At the kink of hinge the derivative is 0. As in TRL, ipo is averaged over tokens, and
/// `sigmoid`, `ipo` and `hinge` are what TRL's `loss_type` calls so; ε with sigmoid is what its `aot` computes for one
/// pair. Computed without overflow for all finite log-probabilities whose differences and squares are finite.
/// \param pairs       (pairs) of the micro-batch; may be empty
/// \param options     kind, β, ε
/// \param batch_pairs of all micro-batches of the step; 0: these are all
/// \throws NotSupported if an option is out of range, or naming a pair with a log-probability that is not finite:
///         then a model has diverged, and no derivative would help
/// \throws DimensionMismatch if the batch has fewer pairs than the micro-batch, or a completion less than 0 tokens
PreferenceLoss preference_loss(std::span<const PreferencePair> pairs, const PreferenceOptions& options = {},
                               std::int64_t batch_pairs = 0);

/// `preference_loss` as the objective of one step. The sequences of the step are chosen, rejected, chosen, …
///
///     PreferenceObjective objective(references, {.beta = 0.1});
///     trainer.step(exec, sequences, std::ref(objective));
///     report(objective.result());
///
/// Micro-batches of any even number of sequences give the same.
class PreferenceObjective {
 public:
  /// \param references (sequences of the step) Σ log π_ref of each completion
  /// \param options    kind, β, ε
  /// \throws DimensionMismatch if the number of sequences is odd
  explicit PreferenceObjective(std::vector<double> references, const PreferenceOptions& options = {});

  /// The share of a micro-batch: an `Objective`.
  /// \param first number of its first sequence in the step
  /// \param logp  of its targets
  /// \throws DimensionMismatch if it does not consist of whole pairs of the step
  /// \throws NotSupported as preference_loss
  ObjectiveShare operator()(std::size_t first, const LogProbabilities& logp);

  /// Of the micro-batches so far: after the step, of the step.
  const PreferenceLoss& result() const { return m_result; }

 private:
  std::vector<double> m_references;
  PreferenceOptions m_options;
  PreferenceLoss m_result;
};

}  // namespace kformer
