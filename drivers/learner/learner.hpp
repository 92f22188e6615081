// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decks/train/train_deck.hpp"
#include "kformer/io/adapter.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/load/training_checkpoint.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/model/generator.hpp"
#include "kformer/model/recompute_costs.hpp"
#include "kformer/train/trainer.hpp"
#include "merge/logit_difference.hpp"

/// \file
/// A model in training, behind an interface without execution space and precision.

namespace kformer::drivers {

/// The description of a learner, which also determines its memory.
struct LearnerTask {
  LlamaConfig config;                            ///< of the model
  DType dtype = DType::f32;                      ///< weights and activations
  TrainerOptions trainer;                        ///< micro-batch, optimizer, schedule, recomputation
  std::optional<CheckpointOptions> checkpoints;  ///< where they go, if there are any
  bool logits = false;                           ///< whether `Learner::logits_after` or `logits_of` is wanted
  bool saves_weights = false;                    ///< whether `Learner::save_weights` is wanted
  std::optional<GeneratorOptions> sampler;       ///< how `Learner::sample` samples, if it is wanted
  bool reference = false;                        ///< whether `Learner::keep_reference` is wanted
  std::size_t staging_bytes = 0;  ///< of the largest weight that is expanded or quantised when it is made
};

/// A model that learns.
class Learner {
 public:
  virtual ~Learner() = default;
  /// Reads the first weights; `prepare` follows.
  virtual void load(const Checkpoint& checkpoint) = 0;
  /// Makes the first weights, a function of the table alone; `prepare` follows.
  virtual void initialise(const InitTable& init) = 0;
  /// Reads the first adapters; `prepare` follows.
  virtual void load(const AdapterCheckpoint& adapter) = 0;
  /// Makes the first adapters, functions of the seed alone: A normal with variance 1/(3·in), B = 0, and
  /// magnitudes the norms of the rows of their weights, which have been written; `prepare` follows.
  virtual void initialise_adapters(std::int64_t seed) = 0;
  /// Starts at step 0.
  virtual void prepare() = 0;
  /// As `Trainer::step`.
  virtual StepReport step(std::span<const TokenSequence> sequences) = 0;
  /// The same with an objective.
  virtual StepReport step(std::span<const TokenSequence> sequences, const Objective& objective) = 0;
  /// As `Trainer::log_probabilities`, by the model as it is now, adapters included.
  virtual LogProbabilities log_probabilities(std::span<const TokenSequence> sequences) = 0;
  /// Makes the weights as they are now the reference, with `LearnerTask::reference`.
  virtual void keep_reference() = 0;
  /// Log-probabilities by the reference: the weights that were kept or, without `LearnerTask::reference`, the model
  /// without its adapters.
  virtual LogProbabilities reference_log_probabilities(std::span<const TokenSequence> sequences) = 0;
  /// Completions by the model as it is now, adapters included, with their log-probabilities. They do not depend on how
  /// many are sampled together.
  /// \param prompts      tokens, at least one each; with the completions at most `seq_len`
  /// \param first_stream completion i draws from stream first_stream + i of the random numbers
  virtual std::vector<GeneratedSequence> sample(std::span<const std::vector<std::int32_t>> prompts,
                                                std::int64_t first_stream) = 0;
  /// As `Trainer::evaluate`.
  virtual double evaluate(std::span<const TokenSequence> sequences) = 0;
  /// As `Trainer::steps_done`.
  virtual std::int64_t steps_done() const = 0;
  /// Logits after the last token of each of some texts of at most `seq_len` tokens, with the weights as they are now.
  virtual Logits logits_after(std::span<const std::vector<std::int32_t>> texts) = 0;
  /// Logits after each token of a text of at most `seq_len` tokens.
  virtual Logits logits_of(const std::vector<std::int32_t>& text) = 0;
  /// The numbers of the trainer, for checkpoints.
  virtual TrainerState state() const = 0;
  /// Writes a checkpoint, as `CheckpointWriter::snapshot`.
  virtual void save_checkpoint(const std::string& text, CheckpointColumns columns) = 0;
  /// Waits for the last checkpoint.
  virtual void finish_checkpoints() = 0;
  /// Continues from a checkpoint, after `prepare`.
  virtual void restore(const TrainingCheckpoint& checkpoint, const TrainerState& state) = 0;
  /// Adds the adapters to the weights. They start again from B = 0.
  virtual void merge_adapters() = 0;
  /// Writes the weights under their published names, without adapters that are not merged. Ranks that divide the model all
  /// make the call; the first writes, and reads the path.
  virtual void save_weights(const std::filesystem::path& path) = 0;
  /// Writes the adapters, as `kformer::save_gguf_adapter`.
  virtual void save_gguf_adapter(const std::filesystem::path& file) = 0;
  /// Writes the adapters, as `kformer::save_adapter`.
  virtual void save_adapter(const std::filesystem::path& folder, const AdapterDescription& description) = 0;
};

/// A learner on the space of that name; all memory is booked in `ledger`.
/// \throws OutOfMemory with the ledger
std::unique_ptr<Learner> make_learner(const std::string& space, const LearnerTask& task,
                                      const std::shared_ptr<Ledger>& ledger);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<Learner> make_learner_on(const LearnerTask& task, Ledger& ledger);

/// What its layers cost under each recomputation policy.
RecomputeCosts recompute_costs_of(const std::string& space, const LearnerTask& task, const MachineRates& rates);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
RecomputeCosts recompute_costs_on(const LearnerTask& task, const MachineRates& rates);

/// The memory that a learner would need, by class, without allocating it.
std::shared_ptr<const Ledger> forecast_of(const std::string& space, const LearnerTask& task);

}  // namespace kformer::drivers
