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
  double temperature = 1;  ///< logits are divided by it; 0: greedy, without the other filters
  std::int64_t top_k = 0;  ///< keep this many of the most probable tokens; 0: all
  double top_p = 1;        ///< in (0, 1]: keep the smallest set of most probable tokens with at least
                           ///< this total probability
  double min_p = 0;        ///< in [0, 1]: keep tokens with at least this fraction of the largest probability
  double repetition_penalty = 1;  ///< > 0: a positive logit of a token in the history is divided by it, a
                                  ///< negative one multiplied
  std::uint64_t seed = 0;         ///< seed of the random numbers
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

/// Operands of `sample` by their shapes only.
Sampling sampling_shapes(DType dtype, std::int64_t rows, std::int64_t vocabulary, bool with_history,
                         const SamplingOptions& options);

}  // namespace Impl

/// Bytes of workspace that `sample` needs on `exec` for logits of type T.
/// \param rows         rows of the logits
/// \param vocabulary   columns of the logits
/// \param with_history whether a history is given
/// \param options      as given to `sample`
/// \throws NotSupported if an option is out of range
template <Scalar T, ExecutionSpace Exec>
std::size_t sample_workspace_bytes(const Exec&, std::int64_t rows, std::int64_t vocabulary, bool with_history,
                                   const SamplingOptions& options = {}) {
  const auto problem = Impl::sampling_shapes(dtype_of<T>, rows, vocabulary, with_history, options);
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// The same on the default instance.
template <Scalar T>
std::size_t sample_workspace_bytes(std::int64_t rows, std::int64_t vocabulary, bool with_history,
                                   const SamplingOptions& options = {}) {
  return sample_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), rows, vocabulary, with_history, options);
}

/// The operands of `sample`.
template <AnyView L, AnyView H, AnyView N, AnyView P, AnyView I, AnyView O>
struct SampleOperands {
  L logits;  ///< (rows, vocabulary), T, not written
  /// (rows, capacity), int32: tokens to penalise, each once; ids outside [0, vocabulary) are ignored
  H history;
  /// (rows), int32: how many of each row of `history` count, clamped to [0, capacity]
  N history_lengths;
  /// (rows), int32: of the token that is chosen, in its text; read if temperature > 0
  P positions;
  I tokens;  ///< (rows), int32, overwritten
  /// (rows), compute_t<T>, overwritten: the log-softmax of the logits as they were given, without any filter,
  /// at the chosen token, as `token_log_probabilities` has it
  O log_probabilities;
};

/// Chooses a token for each row, in the order of the field's libraries: repetition penalty, temperature, top-k,
/// top-p, min-p, draw. So top-p counts shares of what temperature and top-k left, and the token with the
/// largest probability always stays.
///
/// Greedy (temperature 0) takes the largest logit after the penalty, of equal ones the smallest id. Otherwise
/// the probability of a token among those left is proportional to `exp((z − max z) / temperature)`, rounded
/// down to a multiple of 2⁻⁴⁰: sums of those are exact, so that the token depends only on the row, on any
/// number of threads. Tokens of equal probability at the edge of top-k or top-p stay in the order of their ids;
/// top-k leaves exactly k.
///
/// The random number of a row is word 0 and 1 of Philox-4x32-10 (Salmon et al., SC'11, doi
/// 10.1145/2063384.2063405) with key `seed` and counter (`positions[row]`, 0, stream), stream = `first_stream +
/// row`: seed, stream and position alone determine it, whatever else is in the batch.
///
/// A logit that is NaN or −∞ is never chosen, and +∞ is treated as the largest finite number. A row without a
/// token that can be chosen gets token −1 and log-probability NaN.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param operands  the Views, as `SampleOperands` names them
/// \param options   temperature, filters, seed
/// \param workspace `sample_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if an option is out of range, or there are more than 2²³ tokens
template <ExecutionSpace Exec, class... V>
void sample(const Exec& exec, const SampleOperands<V...>& operands, const SamplingOptions& options = {},
            const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.logits)>;
  const Impl::Sampling problem{Impl::input<Exec, T, 2>(operands.logits),
                               Impl::input<Exec, std::int32_t, 2>(operands.history),
                               Impl::input<Exec, std::int32_t, 1>(operands.history_lengths),
                               Impl::input<Exec, std::int32_t, 1>(operands.positions),
                               Impl::output<Exec, std::int32_t, 1>(operands.tokens),
                               Impl::output<Exec, compute_t<T>, 1>(operands.log_probabilities),
                               options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <class... V>
void sample(const SampleOperands<V...>& operands, const SamplingOptions& options = {},
            const Workspace& workspace = {}) {
  sample(Kokkos::DefaultExecutionSpace(), operands, options, workspace);
}

/// `sample` without a history: `repetition_penalty` has no effect.
/// \param exec              the instance
/// \param logits            (rows, vocabulary), T, not written
/// \param positions         (rows), int32
/// \param tokens            (rows), int32, overwritten
/// \param log_probabilities (rows), compute_t<T>, overwritten
/// \param options           temperature, filters, seed
/// \param workspace         `sample_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if an option is out of range, or there are more than 2²³ tokens
template <ExecutionSpace Exec, AnyView L, AnyView P, AnyView I, AnyView O>
void sample(const Exec& exec, const L& logits, const P& positions, const I& tokens, const O& log_probabilities,
            const SamplingOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<L>;
  const Impl::Sampling problem{Impl::input<Exec, T, 2>(logits),
                               {},
                               {},
                               Impl::input<Exec, std::int32_t, 1>(positions),
                               Impl::output<Exec, std::int32_t, 1>(tokens),
                               Impl::output<Exec, compute_t<T>, 1>(log_probabilities),
                               options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView L, AnyView P, AnyView I, AnyView O>
void sample(const L& logits, const P& positions, const I& tokens, const O& log_probabilities,
            const SamplingOptions& options = {}, const Workspace& workspace = {}) {
  sample(Kokkos::DefaultExecutionSpace(), logits, positions, tokens, log_probabilities, options, workspace);
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
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView L, AnyView I, AnyView O>
void token_log_probabilities(const Exec& exec, const L& logits, const I& ids, const O& log_probabilities) {
  using T = Impl::scalar_t<L>;
  const Impl::TokenLogProbabilities problem{Impl::input<Exec, T, 2>(logits),
                                            Impl::input<Exec, std::int32_t, 1>(ids),
                                            Impl::output<Exec, compute_t<T>, 1>(log_probabilities)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView L, AnyView I, AnyView O>
void token_log_probabilities(const L& logits, const I& ids, const O& log_probabilities) {
  token_log_probabilities(Kokkos::DefaultExecutionSpace(), logits, ids, log_probabilities);
}

}  // namespace kformer
