// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decks/train/train_deck.hpp"
#include "kformer/data/prompt_dataset.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/text/tokenizer.hpp"
#include "kformer/train/token_sequence.hpp"

namespace kformer::drivers {

/// Sequences to learn from, or to judge by.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  /// How many there are.
  virtual std::int64_t size() const = 0;
  /// How many of them belong together, one after another: 2 for pairs.
  virtual std::int64_t together() const { return 1; }
  /// Reads number `index`, from 0; its arrays keep their memory.
  virtual void read(std::int64_t index, TokenSequence& sequence) const = 0;
  /// The prompts that the sequences are, each `together()` times, one after another; null if they are none.
  virtual const PromptDataset* prompts() const { return nullptr; }
  /// Identifies the sequences.
  virtual std::string fingerprint() const = 0;
  /// What a user should know about them, as lines of text.
  virtual std::string description() const = 0;
};

/// The data of a deck.
struct TrainingData {
  std::unique_ptr<SequenceSource> train;
  std::unique_ptr<SequenceSource> validation;  ///< null without [evaluation]
};

/// Opens them; files are tokenised unless the cache has their tokens.
/// \param model     whose vocabulary the tokens are of; its beginning-of-text token is for tokenizers that have none
/// \param tokenizer null if the data need none
/// \throws FileError if a file cannot be read or does not hold what the deck says
TrainingData open_training_data(const TrainDeck& deck, const LanguageModelTable& model,
                                const Tokenizer* tokenizer);

/// Opens files of pairs: chosen, rejected, chosen, …
/// \throws FileError as above
std::unique_ptr<SequenceSource> open_pairs(const TrainDeck& deck, const LanguageModelTable& model,
                                           const Tokenizer& tokenizer,
                                           const std::vector<std::filesystem::path>& files);

/// Opens files of prompts, each of which comes as often as its group has completions. Sequences have no targets.
/// \throws FileError as above
std::unique_ptr<SequenceSource> open_prompts(const TrainDeck& deck, const LanguageModelTable& model,
                                             const Tokenizer& tokenizer,
                                             const std::vector<std::filesystem::path>& files,
                                             std::int64_t group_size);

}  // namespace kformer::drivers
