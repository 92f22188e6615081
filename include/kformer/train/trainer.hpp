// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kformer/core/named_array.hpp"
#include "kformer/memory/transfer.hpp"
#include "kformer/model/llama_model.hpp"
#include "kformer/train/data_parallel.hpp"
#include "kformer/train/loss_spikes.hpp"
#include "kformer/train/objective.hpp"
#include "kformer/train/optimizer.hpp"
#include "kformer/train/pipeline.hpp"
#include "kformer/train/schedule.hpp"
#include "kformer/train/token_sequence.hpp"

/// \file
/// Steps of training of a language model.

namespace kformer {

/// Options of `Trainer`.
struct TrainerOptions {
  LayerShape shape{};             ///< of a micro-batch: sequences of one forward and backward, and their tokens
  LayerOptions layer{};           ///< how attention is computed, and whether sequences are packed; the mode is
                                  ///< training. Without `accumulate` a step is one micro-batch and needs less
                                  ///< memory
  RecomputeSchedule recompute{};  ///< what layers keep for backward; without layers: `layer.recompute` for all
  OptimizerOptions optimizer{};   ///< AdamW, gradient clipping, loss scaling
  LearningRateSchedule schedule{};  ///< the learning rate of every step
  CrossEntropyOptions loss{};       ///< label smoothing, z-loss; targets of `loss.ignore_index` do not count
  LossSpikeOptions spikes{};        ///< steps to skip; off by default
  std::uint64_t dropout_seed = 0;   ///< of `layer.lora.dropout`; evaluation has none
  /// Ranks that share a step. With `fixed_order` or `ZeroStage::gradients` gradients are added up outside the model,
  /// whatever `layer.accumulate` says.
  DataParallelOptions parallel{};
  /// Ranks that divide the layers.
  PipelineOptions pipeline{};
};

/// What a step of training did. All numbers refer to the weights before the update.
struct StepReport {
  std::int64_t step = 0;     ///< from 0; steps that were skipped count
  double loss = 0;           ///< mean over the target tokens, in nats; NaN if there is none
  double learning_rate = 0;  ///< of the schedule
  double gradient_norm = 0;  ///< of the mean loss, before clipping; not finite if a gradient is not
  double loss_scale = 1;     ///< that the gradients were computed with
  std::int64_t tokens = 0;   ///< targets with a loss
  ComputedTokens computed;   ///< what went through the layers
  bool skipped = false;  ///< whether the weights are as before: gradients that are not finite, a loss spike, or
                         ///< no target with a loss
};

/// The numbers of a trainer. With the arrays of `Trainer::arrays` they are its whole state.
struct TrainerState {
  std::int64_t steps = 0;            ///< done, with those that were skipped
  OptimizerState optimizer;          ///< its steps and the loss scale
  std::vector<double> spike_losses;  ///< `LossSpikes::losses`
  std::vector<double> spike_norms;   ///< `LossSpikes::norms`
};

/// Consecutive tokens of a sequence.
struct TokenRange {
  std::int64_t begin = 0;  ///< the first
  std::int64_t size = 0;   ///< how many
};

/// Where a token of a micro-batch is.
struct TokenPlace {
  int rank = 0;          ///< of those that divide the tokens (`LayerOptions::context`)
  std::int64_t row = 0;  ///< of the model of that rank
};

namespace Impl {
template <class Exec, class T>
class PipelineRanks;
}

/// Trains a language model whose weights and activations are stored in T. It owns the model and the optimizer, and
/// allocates only in its constructor: a trainer on a ledger that only counts is the forecast of its memory.
///
///     Trainer<Exec, T> trainer(config, {.shape = {micro_batch, seq_len}, .schedule = …}, ledger);
///     load_weights(exec, checkpoint, trainer.model(), ledger);
///     trainer.prepare(exec);
///     while (trainer.steps_done() < steps) report(trainer.step(exec, next_sequences()));
///
/// Loss and gradient of a step are the mean over all its targets with a loss, however the step is cut into
/// micro-batches. The same steps give the same bits, and so do steps that continue from a restored state.
///
/// `shape.seq_len` is what there is memory for. A micro-batch computes each of its sequences up to the last target with a
/// loss that any of them has, rounded up to a multiple of 8: behind a causal mask the tokens that follow change no loss, and
/// have no gradient. Only `forward` computes all, and so does every step of packed sequences, without a causal mask, where
/// ranks divide the tokens (`LayerOptions::context`, `LayerOptions::sequence_parallel`), and in a pipeline.
///
/// With `TrainerOptions::parallel` each rank has a trainer, and the sequences of a step are cut into blocks in order, one
/// for each rank; with `ZeroStage::gradients` ranks take the micro-batches in turns (`LeafShares`). All ranks call `step`
/// with their own sequences; the report is that of the whole step, and the weights are the same everywhere. Other
/// functions know nothing of other ranks. A rank that throws leaves the others waiting until their time-out.
///
/// With `LayerOptions::tensor` in `TrainerOptions::layer` ranks divide the model. They call `step` with the same sequences;
/// with both, each of the ranks that divide a model is one of the ranks that share sequences.
///
/// With `LayerOptions::context` ranks divide the tokens of each sequence, `shape.seq_len` of all of them. They call `step`
/// and `evaluate` with the same whole sequences; `parallel.ranks` are then `RankGrid::replicas()`.
///
/// With `TrainerOptions::pipeline` ranks divide the layers, and each has one or more parts of the model. They call
/// `step` and `evaluate` with the same sequences, and all know the loss. A rank's models are its `parts()`.
///
/// The members are compiled into the library, for every execution space of Kokkos and every storage type.
template <class Exec, Scalar T>
class Trainer {
 public:
  /// Books and allocates everything. Weights are undefined until they are written.
  /// \param config  the model's extents
  /// \param options the micro-batch, the optimizer, …
  /// \param ledger  where the memory is booked
  /// \throws NotSupported if an option is out of range, or `shape` has no token
  /// \throws DimensionMismatch if the configuration is invalid
  /// \throws OutOfMemory with the ledger
  Trainer(const LlamaConfig& config, const TrainerOptions& options, Ledger& ledger);

  /// The model, for its weights; in a pipeline the first of this rank's parts.
  LlamaModel<Exec, T>& model() { return m_models.front(); }
  /// The parts of the model that this rank has: without a pipeline one, which is all of it.
  std::deque<LlamaModel<Exec, T>>& parts() { return m_models; }
  /// The operations among the ranks that divide the layers, or null.
  Collectives<Exec>* stages() const;
  /// The optimizer.
  const Optimizer<Exec, T>& optimizer() const { return m_optimizer; }

  /// Starts at step 0; call it after the weights were written.
  void prepare(const Exec& exec);

  /// One step, with every sequence once. They are cut into micro-batches in order, of which the last may be smaller.
  /// Waits for the result.
  /// \param exec      the instance everything is launched on
  /// \param sequences of this rank, of `shape.seq_len` tokens each
  /// \throws NotSupported if `prepare` was not called, a sequence has several documents without `layer.packed`, or
  ///                      the sequences are not divided among ranks as `DataParallel::begin_step` wants
  /// \throws CommunicationError if another rank does not answer in time
  /// \throws DimensionMismatch if a sequence has another length, or starts that do not ascend from 0
  /// \returns the result of the step; a skipped step changes no weight
  [[nodiscard]] StepReport step(const Exec& exec, std::span<const TokenSequence> sequences);

  /// The same with another loss: a function on the host of the log-probabilities of the targets. Each micro-batch goes
  /// through the layers once; then come the objective, and backward with what it returned. Only the last product of
  /// the model, which gives the logits, is computed again for backward, because they never exist all at once.
  /// \param exec      the instance everything is launched on
  /// \param sequences of `shape.seq_len` tokens each; micro-batches are cut as above, so that with an even
  ///                  `shape.batch` pairs stay together
  /// \param objective returns the share of each micro-batch in the loss of the step, and its derivatives
  /// \throws NotSupported if `prepare` was not called, a sequence has several documents without `layer.packed`, or
  ///                      `loss` has label smoothing or z-loss, which belong to no log-probability
  /// \throws DimensionMismatch if a sequence has another length, or starts that do not ascend from 0, or if the
  ///                           objective returns another number of derivatives than there are targets
  /// \throws whatever the objective throws; then the step was not made
  /// \returns the result of the step, with the sum of what the objective returned as its loss
  [[nodiscard]] StepReport step(const Exec& exec, std::span<const TokenSequence> sequences,
                                const Objective& objective);

  /// Log-probabilities of the targets of some sequences. Leaves the trainer as it is. Waits for the result.
  /// \param exec      the instance everything is launched on
  /// \param sequences of `shape.seq_len` tokens each
  /// \param adapters  off: those of the model without its adapters, the reference model of a training that began with
  ///                  B = 0. A model without adapters gives the same either way
  /// \throws NotSupported if `prepare` was not called, a sequence has several documents without `layer.packed`, or
  ///                      `loss` has label smoothing or z-loss
  /// \throws DimensionMismatch if a sequence has another length, or starts that do not ascend from 0
  LogProbabilities log_probabilities(const Exec& exec, std::span<const TokenSequence> sequences,
                                     AdapterUse adapters = AdapterUse::on);

  /// The mean loss over the targets of some sequences, in nats; NaN if there is none. Leaves the trainer as it is.
  /// Waits for the result.
  /// \param exec      the instance everything is launched on
  /// \param sequences of `shape.seq_len` tokens each
  /// \throws NotSupported if `prepare` was not called, or a sequence has several documents without
  ///                      `layer.packed`
  /// \throws DimensionMismatch if a sequence has another length, or starts that do not ascend from 0
  double evaluate(const Exec& exec, std::span<const TokenSequence> sequences);

  /// Hidden states of at most `shape.batch` sequences, for `logits` of their tokens. Their targets do not matter. Leaves
  /// the trainer as it is.
  /// \param exec      the instance everything is launched on; fence it before the next call
  /// \param sequences of `shape.seq_len` tokens and targets each
  /// \throws NotSupported if `prepare` was not called, or a sequence has several documents without
  ///                      `layer.packed`
  /// \throws DimensionMismatch if there are too many sequences, or one has another length or starts that do not
  ///                           ascend from 0
  void forward(const Exec& exec, std::span<const TokenSequence> sequences);

  /// Where the hidden state of a token is after `forward`.
  TokenPlace place_of(std::int64_t sequence, std::int64_t token) const;

  /// Scores of a token of the last `forward` for every word. Ranks that divide the model, its layers or the tokens all make
  /// the call, and all get them.
  /// \param exec     the instance
  /// \param sequence of `forward`
  /// \param token    of the sequence
  /// \param logits   (1, vocab_size), T, overwritten
  /// \throws NotSupported if there was no `forward`
  /// \throws DimensionMismatch if there is no such token, or extents do not match
  void logits(const Exec& exec, std::int64_t sequence, std::int64_t token,
              const BlockMatrix<typename Exec::memory_space, T>& logits);

  /// Steps since `prepare`, with those that were skipped.
  std::int64_t steps_done() const { return m_steps; }

  /// Every array that a step changes and the next one reads: weights under their published names, and under
  /// "optimizer.master.", "optimizer.m.", "optimizer.v.", "optimizer.m_scale." and "optimizer.v_scale." with these
  /// names what the optimizer keeps for them: all of it, or the shard of this rank.
  std::vector<NamedArray> arrays() const;
  /// What this rank writes of them, so that all ranks together write each element once. Without other ranks: all.
  std::vector<NamedArray> shard() const;
  /// The numbers, for checkpoints.
  TrainerState state() const;
  /// Restores the numbers, after `prepare`. The caller restores the arrays of the same step.
  /// \throws NotSupported if `prepare` was not called or a number is out of range
  void restore(const TrainerState& state);

 private:
  using memory_space = typename Exec::memory_space;
  using C = compute_t<T>;

  // The tokens of a micro-batch and their losses.
  template <class Space>
  struct Batch {
    BlockVector<Space, std::int32_t> ids, targets, starts, positions;
    BlockVector<Space, C> loss;
    MemoryBlock<Space> block;
  };
  enum class Pass { forward, forward_and_backward };
  using Model = LlamaModel<Exec, T>;
  using Pipeline = Impl::PipelineRanks<Exec, T>;

  template <class Space>
  void place(Ledger& ledger, MemoryClass memory_class, const char* label, Arena<Space>& arena,
             Batch<Space>& batch);
  std::int64_t checked_targets(const char* function, std::span<const TokenSequence> sequences) const;
  std::int64_t length_of(std::span<const TokenSequence> part);
  ComputedTokens computed_of(std::span<const TokenSequence> sequences);
  void use_length(std::int64_t length);
  std::vector<TokenRange> own_tokens(std::int64_t length) const;
  // The numbers of the tokens that a micro-batch computes.
  template <class V>
  V of_tokens(const V& all) const {
    return Kokkos::subview(all, std::pair(std::size_t(0), static_cast<std::size_t>(m_shape.batch * m_length)));
  }
  std::int64_t count_targets(std::span<const TokenSequence> sequences,
                             std::span<const TokenRange> tokens) const;
  double sum_over_context(const Exec& exec, double own) const;
  void require_log_probabilities(const char* function) const;
  StepReport begin_step(const Exec& exec, std::span<const TokenSequence> sequences);
  void watch_gradients();
  void finish_step(const Exec& exec, StepReport& report, std::span<const double> losses, double count);
  template <class F>
  void for_micro_batches(std::span<const TokenSequence> sequences, F f);
  std::shared_ptr<void> dropout(std::size_t first);
  void compute_losses(const Exec& exec, std::span<const TokenSequence> part, Pass pass);
  void append_log_probabilities(std::span<const TokenSequence> part, LogProbabilities& logp) const;
  void learn(const Exec& exec, std::span<const TokenSequence> part, const std::vector<double>& dlogp,
             double scale);
  std::vector<double> losses(const Exec& exec, std::span<const TokenSequence> sequences, Pass pass);
  void check_starts(const std::string& sequence, const std::vector<std::int32_t>& starts) const;
  void upload(const Exec& exec, std::span<const TokenSequence> sequences);
  void upload_documents(const Exec& exec, std::span<const TokenSequence> sequences);
  void launch(const Exec& exec, Pass pass);
  static std::shared_ptr<Pipeline> make_pipeline(const LlamaConfig& config, const TrainerOptions& options,
                                                 std::int64_t rows, Ledger& ledger);
  static std::deque<Model> make_models(const LlamaConfig& config, const TrainerOptions& options,
                                       LayerShape shape, const Pipeline* pipeline, Ledger& ledger);
  std::optional<DataParallel<Exec>> make_parallel(Ledger& ledger);
  std::vector<Parameter> trained() const;
  void run_forward(const Exec& exec, Model& model);
  void run_backward(const Exec& exec, Model& model);
  BlockMatrix<memory_space, C> tied_gradient(const Model& model) const;
  void run_task(const Exec& exec, const PipelineTask& task, std::size_t first,
                std::span<const TokenSequence> part);
  void skip_task(const Exec& exec, const PipelineTask& task);
  std::vector<double> pipeline_losses(const Exec& exec, std::span<const TokenSequence> sequences, Pass pass);
  double sum_of_host_losses(std::size_t sequences) const;

  TrainerOptions m_options;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  LayerShape m_shape;                // of this rank's tokens
  std::int64_t m_length;  // of the sequences of the micro-batch: those of m_shape, or the first of them
  std::shared_ptr<Pipeline> m_pipeline;
  std::deque<Model> m_models;  // the parts of this rank
  std::optional<DataParallel<Exec>> m_parallel;
  Optimizer<Exec, T> m_optimizer;
  LossSpikes m_spikes;
  Batch<memory_space> m_batch;
  Batch<HostStagingSpace<memory_space>> m_host;
  BlockVector<memory_space, C> m_dloss;
  PackedTokens<memory_space> m_packed;  // of the micro-batch
  bool m_prepared = false;
  std::int64_t m_steps = 0;
  std::int64_t m_first = 0;   // sequence of this rank in the step
  std::int64_t m_stride = 0;  // to the first sequence of its next micro-batch
};

}  // namespace kformer
