// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "decks/adapter_table.hpp"
#include "decks/generate_deck.hpp"
#include "decks/loss_scale_table.hpp"
#include "decks/train/policy_tables.hpp"
#include "decks/train/weight_storage.hpp"
#include "kformer/core/types/context_exchange.hpp"
#include "kformer/core/types/data_format.hpp"
#include "kformer/core/types/optimizer_states.hpp"
#include "kformer/core/types/precision.hpp"
#include "kformer/core/types/preference_kind.hpp"
#include "kformer/core/types/recompute.hpp"
#include "kformer/core/types/schedule_kind.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/parallel/pipeline_schedule.hpp"
#include "kformer/text/chat_template.hpp"

/// \file
/// Decks of kind "train": a model learns from a data set.

namespace kformer {

/// The table [run] of a training.
struct TrainRunTable : RunTable {
  std::string execution_space = "default";  ///< lower-case name of a Kokkos execution space, or "default"
  bool operator==(const TrainRunTable&) const = default;  ///< all keys equal
};

/// The table [output] of a training.
struct TrainOutputTable : OutputTable {
  std::string model;          ///< folder of the trained model, relative to the working directory; empty: none
  std::string adapter;        ///< folder of the trained adapter, likewise
  bool adapter_gguf = false;  ///< also `adapter.gguf` in it
  bool operator==(const TrainOutputTable&) const = default;  ///< all keys equal
};

/// The distribution of weights before the first step. Norms start as 1, biases as 0.
enum class InitScheme {
  normal,  ///< matrices: normal distribution
  scaled   ///< the same; the two matrices of a layer that write to the residual stream over √(2 · layers)
};
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<InitScheme> = {"normal", "scaled"};

/// The table [init].
struct InitTable {
  InitScheme scheme = InitScheme::scaled;             ///< distribution
  double std = 0.02;                                  ///< standard deviation
  std::int64_t seed = 1;                              ///< `run.seed` if not given
  bool operator==(const InitTable&) const = default;  ///< all keys equal
};

/// The table [data].
struct DataTable {
  DataFormat format = DataFormat::text;           ///< of the files
  std::vector<std::filesystem::path> train;       ///< files, absolute
  std::vector<std::filesystem::path> validation;  ///< files, absolute
  std::optional<ChatStyle> chat_style;  ///< how conversations are written; empty: as the tokenizer says
  Packing packing = Packing::stream;    ///< how documents fill sequences
  bool shuffle = false;                 ///< another order of sequences in each epoch
  std::optional<std::string>
      cache;  ///< folder of tokenised files, relative to the working directory; empty: none
  std::optional<SyntheticTask> task;                  ///< of synthetic data
  std::optional<std::int64_t> length;                 ///< longest text of a task, or digits of a number
  std::optional<std::int64_t> examples;               ///< tasks of an epoch
  std::optional<Truncation> truncation;               ///< of pairs that are too long
  bool operator==(const DataTable&) const = default;  ///< all keys equal
};

/// What a training minimises.
enum class ObjectiveKind {
  next_token,  ///< the loss of every token
  completion,  ///< the loss of the tokens of answers
  dpo,         ///< a loss of pairs of completions: direct preference optimisation
  grpo  ///< a loss of completions that the model samples, and their rewards: group relative policy optimisation
};
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 4> names_of<ObjectiveKind> = {"next_token", "completion", "dpo",
                                                                            "grpo"};

/// The table [objective].
struct ObjectiveTable {
  ObjectiveKind kind = ObjectiveKind::next_token;  ///< `completion` for data with answers if not given
  std::optional<PreferenceKind> loss;              ///< of pairs
  std::optional<double> beta;                      ///< of pairs: how much a departure from the reference counts
  std::optional<double> label_smoothing;           ///< of pairs: probability that one is in the wrong order
  bool operator==(const ObjectiveTable&) const = default;  ///< all keys equal
};

/// The table [batch].
struct BatchTable {
  std::int64_t seq_len = 0;                            ///< tokens of a sequence
  std::int64_t micro_batch = 1;                        ///< sequences of one forward and backward
  std::int64_t sequences = 0;                          ///< sequences of a step; `micro_batch` if not given
  bool operator==(const BatchTable&) const = default;  ///< all keys equal
};

/// The table [precision] of a training.
struct TrainPrecisionTable : LossScaleTable {
  DType storage = DType::f32;                   ///< weights and activations
  Precision compute = Precision::storage;       ///< operands of products that are never stored
  WeightStorage weights = WeightStorage::same;  ///< projections that adapters leave as they are
  bool batch_invariant = false;                 ///< the bits of a sequence do not depend on the others
  bool operator==(const TrainPrecisionTable&) const = default;  ///< all keys equal
};

/// The table [optimizer] of a training: AdamW.
struct TrainOptimizerTable {
  double lr = 1e-3;                                ///< learning rate, the largest of the schedule
  std::vector<double> betas{0.9, 0.999};           ///< of the running means of the gradient and its square
  double eps = 1e-8;                               ///< added to the root of the running mean square
  double weight_decay = 0;                         ///< λ, of matrices
  double max_norm = 0;                             ///< gradients are clipped to this norm, 0 = never
  OptimizerStates states = OptimizerStates::full;  ///< storage of the running means
  MasterWeights master = MasterWeights::f32;       ///< of 16-bit weights
  bool operator==(const TrainOptimizerTable&) const = default;  ///< all keys equal
};

/// The table [schedule].
struct ScheduleTable {
  ScheduleKind kind = ScheduleKind::constant;             ///< course of the learning rate
  std::optional<std::int64_t> steps;                      ///< of the training, or else
  std::optional<std::int64_t> epochs;                     ///< passes over the data
  std::int64_t warmup_steps = 0;                          ///< first steps, in which the rate grows
  double min_lr = 0;                                      ///< last learning rate
  std::optional<std::int64_t> decay_steps;                ///< of wsd: the last steps, in which the rate falls
  bool operator==(const ScheduleTable&) const = default;  ///< all keys equal
};

/// The table [memory] of a training.
struct MemoryTable {
  Recompute recompute = Recompute::pointwise;         ///< what layers keep for backward
  std::string budget;                                 ///< most bytes of the step, "8GiB"; empty: what there is
  std::optional<std::uint64_t> budget_bytes() const;  ///< the budget, if there is one
  bool operator==(const MemoryTable&) const = default;  ///< all keys equal
};

/// The table [checkpoint].
struct CheckpointTable {
  std::string folder;                                       ///< relative to the working directory
  std::int64_t every_steps = 0;                             ///< 0 = only at the end
  std::int64_t keep = 3;                                    ///< newest ones that stay
  bool background = true;                                   ///< written by a thread, from a copy
  bool resume = false;                                      ///< continue from the newest good one
  bool operator==(const CheckpointTable&) const = default;  ///< all keys equal
};

/// Whether the order of sums depends on how many ranks there are.
enum class SumOrder {
  any,   ///< it does
  fixed  ///< it does not: any grid of ranks gives the same bits
};
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<SumOrder> = {"any", "fixed"};

/// The table [parallel] of a plan.
struct PlanParallelTable {
  std::int64_t data = 1;     ///< ranks that share the sequences of a step
  std::int64_t context = 1;  ///< ranks that divide the tokens of a sequence
  ContextExchange context_exchange = ContextExchange::all_gather;  ///< of keys and values among these
  std::int64_t tensor = 1;                                         ///< ranks that divide each model
  bool sequence = false;      ///< whether those of `tensor` divide the tokens of states, too
  std::int64_t pipeline = 1;  ///< ranks that divide the layers
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;  ///< in which order they work
  std::int64_t parts = 1;                                                  ///< of the model on each of them
  std::int64_t zero = 0;                                                   ///< stage of ZeRO
  SumOrder order = SumOrder::any;                                          ///< of sums over micro-batches
  bool overlap = false;          ///< whether gradients travel during backward
  std::int64_t bucket_mib = 32;  ///< of them at a time, in MiB
  std::int64_t ranks() const { return data * context * tensor * pipeline; }  ///< of the training
  bool operator==(const PlanParallelTable&) const = default;                 ///< all keys equal
};

/// The table [parallel] of a training.
struct ParallelTable : PlanParallelTable {
  RankBackend backend = RankBackend::mpi;                 ///< through what ranks send messages
  double timeout_s = 300;                                 ///< of every wait for another rank
  bool operator==(const ParallelTable&) const = default;  ///< all keys equal
};

/// The table [evaluation].
struct EvaluationTable {
  std::int64_t every_steps = 0;                             ///< 0 = only at the end
  std::int64_t sequences = 0;                               ///< of the validation set; 0 = all
  bool operator==(const EvaluationTable&) const = default;  ///< all keys equal
};

/// The table [samples].
struct SamplesTable {
  std::int64_t every_steps = 0;                          ///< 0 = only at the end
  std::vector<std::string> prompts;                      ///< beginnings of texts
  std::int64_t max_new_tokens = 64;                      ///< of a text
  double temperature = 0;                                ///< 0 = the most likely token
  bool operator==(const SamplesTable&) const = default;  ///< all keys equal
};

/// The table [spikes]: steps whose loss and gradient norm stand out are skipped.
struct SpikesTable {
  std::int64_t window = 128;                            ///< steps that a step is compared with
  double loss_z = 6;                                    ///< skip above this z-score of the loss; 0 = never
  double norm_z = 6;                                    ///< skip above this z-score of the norm; 0 = never
  bool operator==(const SpikesTable&) const = default;  ///< all keys equal
};

/// The table [early_stop].
struct EarlyStopTable {
  std::int64_t patience = 3;                               ///< evaluations without a better loss
  double min_improvement = 0;                              ///< a better loss is lower by more than this
  bool operator==(const EarlyStopTable&) const = default;  ///< all keys equal
};

/// The table [profile] of a training.
struct TrainProfileTable {
  bool kernels = false;        ///< time every kernel of one step more, with fences; its update counts
  bool timeline = false;       ///< note when each kernel, region and section of that step begins and ends
  bool machine_limits = true;  ///< measure what the machine can do before the first step
  bool operator==(const TrainProfileTable&) const = default;  ///< all keys equal
};

/// A deck of kind "train".
struct TrainDeck {
  TrainRunTable run;                          ///< [run]
  TrainProfileTable profile;                  ///< [profile]
  TrainOutputTable output;                    ///< [output]
  std::optional<WeightsTable> weights;        ///< [weights], a checkpoint to start from; or else
  std::optional<LanguageModelTable> model;    ///< [model], complete, and
  std::optional<InitTable> init;              ///< [init], its first weights
  std::optional<AdapterTable> adapter;        ///< [adapter], which learns in place of the weights
  TokenizerTable tokenizer;                   ///< [tokenizer]
  ObjectiveTable objective;                   ///< [objective]
  std::optional<PolicyTable> policy;          ///< [policy], of objective grpo
  std::vector<RewardTable> rewards;           ///< [[reward]], likewise
  DataTable data;                             ///< [data]
  BatchTable batch;                           ///< [batch]
  TrainPrecisionTable precision;              ///< [precision]
  TrainOptimizerTable optimizer;              ///< [optimizer]
  ScheduleTable schedule;                     ///< [schedule]
  MemoryTable memory;                         ///< [memory]
  std::optional<ParallelTable> parallel;      ///< [parallel]
  std::optional<CheckpointTable> checkpoint;  ///< [checkpoint]
  std::optional<EvaluationTable> evaluation;  ///< [evaluation]
  std::optional<SamplesTable> samples;        ///< [samples]
  std::optional<SpikesTable> spikes;          ///< [spikes]
  std::optional<EarlyStopTable> early_stop;   ///< [early_stop]
  DeckRecord record;                          ///< how the deck was read
};

/// Reads a deck of kind "train". Needs neither Kokkos nor a device. Data and checkpoint are not opened.
/// \throws FileError if the file cannot be read
/// \throws DeckError if the deck is invalid; the text lists every fault with its place
TrainDeck load_train_deck(const DeckSource& source);

/// The execution space of a training.
/// \param built_spaces lower-case names of the execution spaces of this build, the default one first
/// \throws DeckError for a space that is not built
std::string execution_space_of(const TrainRunTable& table, const std::vector<std::string>& built_spaces);

/// The reference of a training.
template <>
std::string describe_deck_markdown<TrainDeck>();

/// The JSON Schema of a training.
template <>
std::string describe_deck_json_schema<TrainDeck>();

}  // namespace kformer
