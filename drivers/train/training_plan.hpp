// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/prompt_encoder.hpp"
#include "kformer/io/adapter.hpp"
#include "kformer/io/checkpoint.hpp"
#include "learner/memory_policy.hpp"
#include "objective/sequence_source.hpp"
#include "train/tokenizer_files.hpp"

/// \file
/// All that is known of a training before it starts.

namespace kformer::drivers {

/// The parts of a training.
struct TrainingPlan {
  std::optional<Checkpoint> checkpoint;      ///< of [weights]
  LanguageModelTable model;                  ///< of [weights] or [model]
  std::optional<AdapterCheckpoint> adapter;  ///< of `adapter.path`
  std::unique_ptr<PromptEncoder> encoder;    ///< null if nothing needs a tokenizer
  TrainingData data;                         ///< sequences
  TokenizerFiles tokenizer_files;            ///< those that belong to the trained model
  std::vector<std::string> notes;            ///< what a user should know, a sentence each
  std::int64_t steps = 0;                    ///< of the training
  LearnerTask task;                          ///< all but `recompute`
  std::string first_weights;                 ///< identifies what a resumed run needs of them; empty: nothing

  /// Bytes of scratch memory that each thread needs.
  std::size_t scratch_per_thread() const;
};

/// Opens the checkpoint, the tokenizer and the data of a deck.
/// \throws FileError if a file cannot be read, or does not match the model
/// \throws NotSupported if the training would have no step, or the schedule does not fit its steps
TrainingPlan plan_training(const TrainDeck& deck);

/// What a run must have in common with the one it continues: names and values.
std::map<std::string, std::string> identity_of(const TrainDeck& deck, const TrainingPlan& plan);

/// What the files of a plan have in them, by the keys that name them; empty where there is none. Weights count by some bytes of
/// each.
std::map<std::string, std::string> contents_of(const TrainingPlan& plan);

/// What a run may change when it continues another one, although it changes the numbers: names and values.
std::map<std::string, std::string> settings_of(const TrainDeck& deck);

/// Where the texts of a plan stand behind their labels.
inline constexpr std::size_t plan_indent = 12;

/// The plan as lines of text: parameters, data, steps.
std::string plan_text(const TrainDeck& deck, const TrainingPlan& plan);

/// What the ledger of a run may have: its budget, or what scratch memory leaves of the memory that is free, if that is less.
/// \param free    bytes; nothing: unknown
/// \param scratch bytes
/// \throws OutOfMemory if not even these are free
std::optional<std::size_t> memory_limit(const TrainDeck& deck, std::optional<std::size_t> free,
                                        std::size_t scratch);

/// Memory and recomputation as lines of text.
/// \param recompute_seconds time of recomputation in a micro-batch, as well as it is known
/// \param limit             what the memory may be, if that is known
/// \param scratch           bytes of scratch memory beside it
std::string memory_text(const TrainDeck& deck, const MemoryDecision& memory, double recompute_seconds,
                        const std::optional<std::size_t>& limit, std::size_t scratch);

}  // namespace kformer::drivers
