// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kformer/text/chat_template.hpp"
#include "kformer/text/tokenizer.hpp"

/// \file
/// Prompts as tokens, with what rewards need to know: data for `policy_loss` (docs/preferences.md).

namespace kformer {

/// A set of prompts.
struct PromptDataOptions {
  std::vector<std::filesystem::path> files;  ///< JSON lines, in this order
  std::int64_t max_tokens = 0;               ///< the longest prompt; longer ones are left out. 0: no limit
  std::int64_t vocab_size = 0;               ///< every token must be below; 0: not checked
  std::optional<ChatTemplate> chat;          ///< how messages are written; none: the tokenizer's template
  std::optional<std::int32_t> bos;  ///< beginning-of-text token of the model, for a tokenizer without one
  std::optional<bool> add_bos;      ///< whether it precedes a prompt; none: as the tokenizer says
};

/// A prompt.
struct PromptSample {
  std::vector<std::int32_t> ids;              ///< tokens, up to where the completion begins; at least one
  std::string prompt;                         ///< the member that is the prompt, as JSON: a text or messages
  std::map<std::string, std::string> fields;  ///< all other members, by name, as JSON;
                                              ///< numbers as the line spells them
};

/// What a set of prompts consists of.
struct PromptReport {
  std::int64_t prompts = 0;   ///< as `PromptDataset::size`
  std::int64_t tokens = 0;    ///< of all prompts
  std::int64_t longest = 0;   ///< tokens of a prompt
  std::int64_t too_long = 0;  ///< prompts left out
};

/// Prompts that a policy is to complete. Immutable, so that threads may share one.
///
/// A line is `{"prompt": "..."}`, a text that is written as it is, or `{"prompt": [...]}`, messages that end with one
/// of the user, written by the chat template up to the next turn of the assistant; control tokens that they spell out
/// remain text. In place of "prompt" there may be "messages", "conversations", "question", or "instruction" with
/// "input"; the last two are what the user says. With a "system" text, which is the first message, a text is what the
/// user says, too. All members but the prompt, such as `answer`, are kept for rewards.
class PromptDataset {
 public:
  /// Reads all files and keeps their prompts in memory.
  /// \param options   files, limit
  /// \param tokenizer of the model. Not kept
  /// \throws FileError naming the file, the line and what was expected; or if there are no prompts
  /// \throws Error if an option is out of range
  static PromptDataset open(const PromptDataOptions& options, const Tokenizer& tokenizer);

  /// The number of prompts.
  std::int64_t size() const { return static_cast<std::int64_t>(m_samples.size()); }

  /// A prompt.
  /// \param index 0 … size() − 1
  /// \throws Error if `index` is out of range
  const PromptSample& at(std::int64_t index) const;

  /// What the set consists of.
  const PromptReport& report() const { return m_report; }

  /// Identifies the prompts: a hash of all tokens and members.
  std::string fingerprint() const;

 private:
  PromptDataset() = default;

  std::vector<PromptSample> m_samples;
  PromptReport m_report;
};

}  // namespace kformer
