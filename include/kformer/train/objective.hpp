// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

/// \file
/// Losses that are functions of log-probabilities, such as those of preferences and policies. Free of Kokkos.

namespace kformer {

/// Log-probabilities of the targets of some sequences. Targets without a loss are left out.
struct LogProbabilities {
  std::vector<double> values;  ///< (targets) log p: minus what `LlamaModel::loss` returns, in nats
  std::vector<std::int64_t> offsets{
      0};  ///< (sequences + 1) the first target of each sequence, ascending; the end

  /// How many sequences there are.
  std::size_t sequences() const { return offsets.size() - 1; }
  /// Those of a sequence, 0 … sequences() − 1.
  std::span<const double> of(std::size_t sequence) const {
    const auto first = static_cast<std::size_t>(offsets[sequence]);
    return std::span(values).subspan(first, static_cast<std::size_t>(offsets[sequence + 1]) - first);
  }
  /// Their sum: the log-probability of a completion; 0 if there are none.
  double sum(std::size_t sequence) const {
    const auto logp = of(sequence);
    return std::accumulate(logp.begin(), logp.end(), 0.0);
  }
};

/// What a micro-batch contributes to the loss L of a step.
struct ObjectiveShare {
  double loss = 0;            ///< those of all micro-batches add up to L
  std::vector<double> dlogp;  ///< (targets) ∂L/∂ log p, in the order of `LogProbabilities::values`
};

/// Called once for every micro-batch of a step, in their order, with the number of its first sequence in the step and
/// the log-probabilities of its targets.
using Objective = std::function<ObjectiveShare(std::size_t first, const LogProbabilities& logp)>;

}  // namespace kformer
