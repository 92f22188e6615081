// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// The next token from a model's logits: greedy or at random, with temperature, top-k (Fan et al.,
/// arXiv:1805.04833), top-p (Holtzman et al., arXiv:1904.09751), min-p (Nguyen et al., arXiv:2407.01082) and a
/// repetition penalty (Keskar et al., arXiv:1909.05858, eq. 2); and log-probabilities of given tokens.

namespace kformer {

/// Options of `sample`. The defaults draw from the softmax of the logits.
struct SamplingOptions {
  double temperature = 1;         ///< logits are divided by it; 0: greedy, and the other filters mean nothing
  std::int64_t top_k = 0;         ///< only so many tokens stay, the most probable; 0: all
  double top_p = 1;               ///< in (0, 1]: the most probable tokens stay that together have this share
  double min_p = 0;               ///< in [0, 1]: tokens stay that have this share of the largest probability
  double repetition_penalty = 1;  ///< > 0: a positive logit of a token in the history is divided by it, a
                                  ///< negative one multiplied
  std::uint64_t seed = 0;         ///< of the random numbers
  std::int64_t first_stream = 0;  ///< row r draws from the stream `first_stream + r` of random numbers
};

namespace Impl {

struct Sampling {
  static constexpr const char* op = "sampling";
  static constexpr const char* function = "sample";
  TensorRef logits, history, history_lengths, positions, tokens, log_probabilities;
  SamplingOptions options;
  Operands operands() const;
  void check() const;
  /// Whether the history changes anything.
  bool penalised() const { return options.repetition_penalty != 1 && history.present(); }
};

struct TokenLogProbabilities {
  static constexpr const char* op = "sampling";
  static constexpr const char* function = "token_log_probabilities";
  TensorRef logits, ids, log_probabilities;
  Operands operands() const;
  void check() const;
};

/// Operands of `sample` by their shapes alone.
Sampling sampling_shapes(DType dtype, std::int64_t rows, std::int64_t vocabulary, bool with_history,
                         const SamplingOptions& options);

}  // namespace Impl

/// Bytes of workspace that `sample` needs on `exec` for logits of type T.
/// \param rows         rows of the logits
/// \param vocabulary   columns of the logits
/// \param with_history whether a history is given
/// \param options      as given to `sample`
/// \throws NotSupported if an option is out of range
template <Scalar T, class Exec>
std::size_t sample_workspace_bytes(const Exec&, std::int64_t rows, std::int64_t vocabulary, bool with_history,
                                   const SamplingOptions& options) {
  const auto problem = Impl::sampling_shapes(dtype_of<T>, rows, vocabulary, with_history, options);
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// Chooses a token for each row, in the order of the field's libraries: repetition penalty, temperature, top-k,
/// top-p, min-p, draw. So top-p counts shares of what temperature and top-k left, and the token with the
/// largest probability always stays.
///
/// Greedy (temperature 0) takes the largest logit after the penalty, of equal ones the smallest id. Otherwise
/// the probability of a token among those left is proportional to `exp((z − max z) / temperature)`, rounded
/// down to a multiple of 2⁻⁴⁰: sums of those are exact, so that the token depends on the row alone, on any
/// number of threads. Tokens of equal probability at the edge of top-k or top-p stay in the order of their ids;
/// top-k leaves exactly k.
///
/// The random number of a row is word 0 and 1 of Philox-4x32-10 (Salmon et al., SC'11, doi
/// 10.1145/2063384.2063405) with key `seed` and counter (`positions[row]`, 0, stream), stream = `first_stream +
/// row`: the same seed, stream and position draw alike, whatever else is in the batch.
///
/// A logit that is NaN or −∞ is never chosen, and +∞ stands for the greatest finite number. A row without a
/// token that can be chosen gets token −1 and log-probability NaN.
///
/// \param exec              the instance everything is launched on; nothing is fenced or allocated
/// \param logits            (rows, vocabulary), T, not written
/// \param history           (rows, capacity), int32: tokens to penalise, each once; ids outside [0, vocabulary)
/// are passed over
/// \param history_lengths   (rows), int32: how many of each row of `history` count, clamped to [0, capacity]
/// \param positions         (rows), int32: of the token that is chosen, in its text; read if temperature > 0
/// \param tokens            (rows), int32, overwritten
/// \param log_probabilities (rows), compute_t<T>, overwritten: the log-softmax of the logits as they were
/// given, without any filter, at the chosen token, as `token_log_probabilities` has it
/// \param options           temperature, filters, seed
/// \param workspace         `sample_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
/// \throws NotSupported if an option is out of range
template <class Exec, ViewOf<2> L, ViewOf<2> H, ViewOf<1> N, ViewOf<1> P, ViewOf<1> I, ViewOf<1> O>
void sample(const Exec& exec, const L& logits, const H& history, const N& history_lengths, const P& positions,
            const I& tokens, const O& log_probabilities, const SamplingOptions& options = {},
            const Workspace& workspace = {}) {
  static_assert(Impl::all_accessible<Exec, L, H, N, P, I, O>,
                "kformer: Views must be accessible from the execution space");
  const Impl::Sampling problem{erase(logits),    erase(history), erase(history_lengths),
                               erase(positions), erase(tokens),  erase(log_probabilities),
                               options};
  problem.check();
  Impl::run_best(exec, problem, workspace);
}

/// `sample` without a history: `repetition_penalty` means nothing.
/// \param exec              the instance
/// \param logits            (rows, vocabulary), T, not written
/// \param positions         (rows), int32
/// \param tokens            (rows), int32, overwritten
/// \param log_probabilities (rows), compute_t<T>, overwritten
/// \param options           temperature, filters, seed
/// \param workspace         `sample_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
/// \throws NotSupported if an option is out of range
template <class Exec, ViewOf<2> L, ViewOf<1> P, ViewOf<1> I, ViewOf<1> O>
void sample(const Exec& exec, const L& logits, const P& positions, const I& tokens, const O& log_probabilities,
            const SamplingOptions& options = {}, const Workspace& workspace = {}) {
  static_assert(Impl::all_accessible<Exec, L, P, I, O>,
                "kformer: Views must be accessible from the execution space");
  const Impl::Sampling problem{erase(logits), {}, {}, erase(positions), erase(tokens), erase(log_probabilities),
                               options};
  problem.check();
  Impl::run_best(exec, problem, workspace);
}

/// `log_probabilities[row] = z[ids[row]] − log Σ_v e^z[v]` over the logits z of the row: the mean of its
/// negative over the tokens of a text is the score of the text.
///
/// Logits that are NaN count as −∞, +∞ as the greatest finite number. An id outside [0, vocabulary) gives NaN,
/// as does a row without any logit above −∞; a token with logit −∞ or NaN has −∞.
///
/// \param exec              the instance everything is launched on; nothing is fenced or allocated
/// \param logits            (rows, vocabulary), T
/// \param ids               (rows), int32
/// \param log_probabilities (rows), compute_t<T>, overwritten, in nats
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<2> L, ViewOf<1> I, ViewOf<1> O>
void token_log_probabilities(const Exec& exec, const L& logits, const I& ids, const O& log_probabilities) {
  static_assert(Impl::all_accessible<Exec, L, I, O>,
                "kformer: Views must be accessible from the execution space");
  const Impl::TokenLogProbabilities problem{erase(logits), erase(ids), erase(log_probabilities)};
  problem.check();
  Impl::run_best(exec, problem);
}

}  // namespace kformer
