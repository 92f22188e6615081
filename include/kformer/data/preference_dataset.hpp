// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kformer/core/types/data_format.hpp"
#include "kformer/text/chat_template.hpp"
#include "kformer/text/tokenizer.hpp"
#include "kformer/train/token_sequence.hpp"

/// \file
/// Pairs of completions as tokens: data for `preference_loss` (docs/preferences.md).

namespace kformer {

/// A set of pairs.
struct PreferenceDataOptions {
  std::vector<std::filesystem::path> files;        ///< JSON lines, in this order
  std::int64_t max_tokens = 1024;                  ///< the longest sequence: prompt and completion
  Truncation truncation = Truncation::keep_start;  ///< what happens to longer ones
  std::int64_t vocab_size = 0;                     ///< every token must be below; 0: not checked
  std::optional<ChatTemplate> chat;                ///< how messages are written; none: the tokenizer's template
  std::optional<std::int32_t> bos;  ///< beginning-of-text token of the model, for a tokenizer without one
  std::optional<bool> add_bos;      ///< whether it precedes a prompt; none: as the tokenizer says
};

/// A pair as a model reads it. Targets are the tokens of completions; all others are −100.
struct PreferenceSequences {
  TokenSequence chosen;            ///< prompt and better completion
  TokenSequence rejected;          ///< the same prompt and the worse one
  std::int64_t prompt_tokens = 0;  ///< with how many tokens both begin; the next is the first of a completion
};

/// What a set of pairs consists of.
struct PreferenceReport {
  std::int64_t pairs = 0;          ///< as `PreferenceDataset::size`
  std::int64_t tokens = 0;         ///< of all sequences
  std::int64_t target_tokens = 0;  ///< of completions
  std::int64_t longest = 0;        ///< tokens of a sequence
  std::int64_t truncated = 0;      ///< pairs with a sequence that was cut
  std::int64_t too_long = 0;       ///< pairs left out: they do not fit, or nothing of a completion does
  std::int64_t equal = 0;          ///< pairs left out: both sequences are the same, so nothing is learnt
};

/// Pairs of completions, of which people chose one, as tokens. Immutable, so that threads may share one.
///
/// A line is one of
///
///     {"prompt": "...", "chosen": "...", "rejected": "..."}        texts, written as they are
///     {"chosen": "...", "rejected": "..."}                         texts; both begin with the prompt
///     {"prompt": [...], "chosen": [...], "rejected": [...]}        messages; a text is one message
///     {"chosen": [...], "rejected": [...]}                         messages; both begin with the prompt
///     {"input": {"messages": [...]}, "preferred_output": [...], "non_preferred_output": [...]}
///
/// with messages {"role": ..., "content": ...} or {"from": ..., "value": ...}; a list of one needs no brackets. In
/// place of "prompt" there may be "messages", "conversations", "question", or "instruction" with "input"; the last two
/// are what the user says. A "system" text is the first message. Other members are ignored. Messages are written by
/// the chat template, as `TokenDataset` does it: control tokens that they spell out remain text. Of a completion the
/// answers and the tokens that end them are targets. After a text comes the first end-of-text token, a target, too. A
/// sequence ends with its last target.
class PreferenceDataset {
 public:
  /// Reads all files and keeps their tokens in memory.
  /// \param options   files, truncation
  /// \param tokenizer of the model. Not kept
  /// \throws FileError naming the file, the line and what was expected; or if there are no pairs
  /// \throws Error if an option is out of range
  static PreferenceDataset open(const PreferenceDataOptions& options, const Tokenizer& tokenizer);

  ~PreferenceDataset();
  PreferenceDataset(PreferenceDataset&& other) noexcept;             ///< moves the contents
  PreferenceDataset& operator=(PreferenceDataset&& other) noexcept;  ///< moves the contents

  /// The number of pairs.
  std::int64_t size() const;

  /// Reads a pair; its arrays keep their memory. Thread-safe.
  /// \param index     0 … size() − 1
  /// \param sequences receives it
  /// \throws Error if `index` is out of range
  void read(std::int64_t index, PreferenceSequences& sequences) const;

  /// What the set consists of.
  const PreferenceReport& report() const;

  /// Identifies the pairs: a hash of all tokens and of which are targets.
  std::string fingerprint() const;

 private:
  struct Contents;
  explicit PreferenceDataset(std::unique_ptr<const Contents> contents);
  std::unique_ptr<const Contents> m_contents;
};

}  // namespace kformer
