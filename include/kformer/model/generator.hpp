// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kformer/memory/transfer.hpp"
#include "kformer/model/llama_decoder.hpp"
#include "kformer/ops/sampling.hpp"

/// \file
/// Batched generation: prompts in chunks, then one token at a time for all sequences.

namespace kformer {

/// Why a sequence gets no more tokens.
/// `length`: `max_new_tokens`, all positions of the decoder, or a cache without room for another token;
/// `no_token`: every logit is NaN or −∞.
enum class StopReason { none, end_of_text, length, caller, no_token };

/// How text is generated.
struct GeneratorOptions {
  std::int64_t batch = 1;                   ///< sequences
  std::int64_t max_new_tokens = 256;        ///< of a sequence
  std::int64_t prefill_chunk = 512;         ///< most tokens of a prompt in one step
  bool share_prefix = true;                 ///< compute a common prefix of prompts once
  bool score_prompt = false;                ///< log-probabilities of the prompts' tokens too
  bool recompute = false;                   ///< keep nothing between tokens: use it to check a cache
  std::vector<std::int32_t> end_of_text{};  ///< tokens that end a sequence
  SamplingOptions sampling{};               ///< how tokens are chosen; stream i belongs to sequence i
  std::int64_t repetition_window = 0;       ///< last tokens that the repetition penalty counts; 0: all
};

/// A sequence that is generated.
struct GeneratedSequence {
  std::vector<std::int32_t> tokens;  ///< prompt and continuation
  /// Of each token given those before it; NaN where it is not known. With a batch-invariant decoder they have the bits
  /// of the loss of `LlamaModel` with `LayerOptions::batch_invariant`.
  std::vector<double> log_probabilities;
  std::int64_t prompt_tokens = 0;         ///< of the tokens
  StopReason stopped = StopReason::none;  ///< why the sequence ended
  std::int32_t adapter = -1;              ///< of the decoder, with which it is computed; −1: none

  /// Tokens of the continuation.
  std::int64_t new_tokens() const { return static_cast<std::int64_t>(tokens.size()) - prompt_tokens; }
};

/// Generates text with a decoder and a cache that were made for at least this batch and these chunks.
///
///     generator.start(exec, prompts);
///     while (generator.running()) generator.step(exec);
///
/// `start` computes all tokens of the prompts but the last ones, with which the first `step` begins. Every
/// `step` waits for its tokens.
///
/// Where `start` throws while it computes, there are no sequences afterwards, and those of the cache are empty. Where
/// `step` or `final_logits` throws, the sequences have the tokens that they had before, and the cache has no open step: the
/// call may be repeated, or `start` begins anew.
template <class Exec, Scalar T>
class Generator {
 public:
  /// Books and allocates the memory of the steps besides decoder and cache, which must outlive the generator.
  /// \throws DimensionMismatch if a step of decoder or cache takes fewer sequences or tokens than the options
  ///         ask for
  /// \throws NotSupported if a sampling option is out of range
  /// \throws OutOfMemory with the ledger
  Generator(LlamaDecoder<Exec, T>& decoder, KvCache<Exec, T>& cache, const GeneratorOptions& options,
            Ledger& ledger);

  /// Forgets what was generated and takes new prompts.
  /// \param exec    the instance of this and all steps
  /// \param prompts tokens of each sequence, at least one; at most `batch` prompts
  /// \param stop    called between chunks; if it returns true, the rest of the prompts is not computed, and all
  ///                sequences end as by `stop(sequence)`
  /// \param adapters of the decoder, one for each prompt, −1 for none; not given: the only adapter of the
  ///                 decoder for all, or none if there is none
  /// \throws DimensionMismatch if there is no prompt, or more than `batch`; if adapters are given, but not one for
  ///         each prompt; if a prompt is empty or has more tokens than the decoder has positions or the cache
  ///         has room for; or if the generator or its cache has no memory
  /// \throws NotSupported if there is no such adapter, or the decoder has several and none is given
  void start(const Exec& exec, std::vector<std::vector<std::int32_t>> prompts,
             const std::function<bool()>& stop = {}, const std::vector<std::int32_t>& adapters = {});

  /// From the next token on, sequence i draws from stream first_stream + i of the random numbers, in place of what the
  /// options say: texts of one seed that shall differ.
  void draw_from(std::int64_t first_stream) { m_options.sampling.first_stream = first_stream; }

  /// Whether a sequence goes on.
  bool running() const;

  /// One more token for every sequence that goes on, if there is one to choose.
  /// \throws NotSupported if the cache has seen the last token of a sequence already, as after `final_logits`, and cannot
  ///         go back by one (`KvCache::can_truncate`)
  void step(const Exec& exec);

  /// Ends a sequence, for instance because its text contains a stop string of the caller.
  /// \throws NotSupported if there is no such sequence
  void stop(std::int64_t sequence);

  /// The sequences so far.
  const std::vector<GeneratedSequence>& sequences() const { return m_sequences; }

  /// The logits that the last `step` chose from, by sequence; empty for sequences that ended earlier, and for all where it
  /// threw before it had them.
  std::vector<std::vector<double>> step_logits(const Exec& exec) const;

  /// The logits after the last token of every sequence; the cache has seen that token then. What an interrupted `start` left
  /// out is computed first. Until the next `step` further calls return the same numbers.
  /// \throws NotSupported if the cache has no room, or has seen the last token of a sequence already, as with
  ///         `StopReason::no_token`, and cannot go back by one
  std::vector<std::vector<double>> final_logits(const Exec& exec);

  /// Tokens that went through the model since `start`; those that sequences share count once.
  std::int64_t computed_tokens() const { return m_computed_tokens; }

 private:
  using memory_space = typename Exec::memory_space;
  using C = compute_t<T>;
  using Matrix = BlockMatrix<memory_space, T>;
  using Integers = BlockVector<memory_space, std::int32_t>;
  using History =
      Kokkos::View<std::int32_t**, Kokkos::LayoutRight, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  void check() const;
  void require_adapters(const std::vector<std::int32_t>& adapters, std::size_t prompts) const;
  void place(Ledger& ledger);
  bool prefill(const Exec& exec, std::size_t sequence, std::size_t from, const std::function<bool()>& stop);
  std::size_t reuse_prefix(const Exec& exec, std::size_t sequence);
  void score_prompt(const Exec& exec, GeneratedSequence& sequence, std::size_t from, std::size_t count);
  void feed(const Exec& exec, std::span<const std::int64_t> new_tokens, std::span<const std::int32_t> ids);
  void require_room(std::size_t prompt, std::size_t from);
  void end_where_full();
  void reach_last(const Exec& exec, std::size_t sequence, const char* function);
  void feed_last(const Exec& exec, std::vector<std::size_t> live, const char* function);
  void sample_tokens(const Exec& exec);
  void take_losses(const Exec& exec, const Matrix& logits, const Integers& tokens);
  double log_probability(C score) const { return invariant() ? -static_cast<double>(score) : score; }
  void upload_history(const Exec& exec);
  void upload(const Exec& exec, const Integers& to, std::vector<std::int32_t> from);
  template <class V>
  auto download(const Exec& exec, const V& from) const;
  void fence(const Exec& exec, const char* label);
  template <class V>
  auto first(const V& view, std::size_t count) const {
    return Kokkos::subview(view, std::pair<std::size_t, std::size_t>(0, count));
  }
  // Whether there is no position for another token.
  bool is_full(const GeneratedSequence& s) const {
    return static_cast<std::int64_t>(s.tokens.size()) >= m_decoder.options().max_positions;
  }
  // Whether scores are the losses that training computes.
  bool invariant() const { return m_decoder.options().batch_invariant; }
  bool penalised() const { return m_options.sampling.repetition_penalty != 1; }

  LlamaDecoder<Exec, T>& m_decoder;
  KvCache<Exec, T>& m_cache;
  GeneratorOptions m_options;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  std::vector<GeneratedSequence> m_sequences;
  std::int64_t m_computed_tokens = 0;
  std::vector<std::size_t> m_live;                  // sequences of the last step
  std::deque<std::vector<std::int32_t>> m_uploads;  // what copies may read until the next fence
  Matrix m_logits;                                  // behind their last tokens, in memory of the decoder
  std::vector<std::vector<double>> m_final_logits;  // that `final_logits` returned since the last step
  MemoryBlock<memory_space> m_block;
  bool m_chosen = false;  // whether each sequence has an adapter of its own
  Integers m_ids, m_positions, m_rows, m_tokens, m_history_lengths, m_adapters;
  History m_history;
  BlockVector<memory_space, C> m_log_probabilities, m_lse;
  BlockVector<memory_space, std::byte> m_workspace;
};

}  // namespace kformer
