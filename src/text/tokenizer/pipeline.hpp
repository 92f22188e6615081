// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/text/tokenizer.hpp"
#include "text/steps/added_tokens.hpp"
#include "text/steps/normalizer.hpp"
#include "text/steps/piece_table.hpp"
#include "text/steps/splitting.hpp"

namespace kformer::Impl::tokenizers {

/// How the spelling of a token becomes bytes again.
enum class Spelling {
  byte_letters,  ///< each byte as its letter
  spaces         ///< `▁` for a space
};

/// Which spaces at the beginning of a text are dropped, because one was put there.
enum class DroppedSpaces {
  none,
  first,          ///< one
  of_first_token  ///< all in the spelling of the first token
};

/// The parts of a tokenizer that works in steps: added tokens are found, the text between them is normalised,
/// split into words, and each word is merged into tokens.
struct Pipeline {
  std::unique_ptr<PieceTable> pieces = std::make_unique<PieceTable>();
  AddedTokens added_raw;         ///< found before the text is normalised
  AddedTokens added_normalised;  ///< found after
  std::vector<bool> special;     ///< by id: has no text
  std::vector<bool> literal;     ///< by id: its text is its spelling
  std::vector<NormalStep> normal_steps;
  std::vector<SplitStep> split_steps;
  std::function<void(std::string_view word, std::vector<std::int32_t>& ids)> merge;
  Spelling spelling = Spelling::byte_letters;
  bool names_bytes = true;  ///< with `spaces`: `<0x0A>` is a byte
  DroppedSpaces dropped_spaces = DroppedSpaces::none;

  std::optional<std::int32_t> bos;
  std::vector<std::int32_t> eos;
  bool adds_bos = false;
  std::string chat_template;
  std::string fingerprint;

  /// A text after the normal steps.
  /// \throws NotSupported if they make it much longer
  std::string normalised(std::string_view raw) const;

  /// Marks a token as special or literal.
  static void mark(std::vector<bool>& marks, std::int32_t id);
};

/// The tokenizer made of these parts.
std::unique_ptr<const Tokenizer> make_pipeline_tokenizer(Pipeline pipeline);

}  // namespace kformer::Impl::tokenizers
