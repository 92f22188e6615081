// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/types/tokenizer_format.hpp"
#include "kformer/text/chat_template.hpp"

/// \file
/// Tokenizers: text to token ids and back, equal to the published tokenizers (docs/tokenizers.md).

namespace kformer {

/// Splits text into tokens of a vocabulary. Immutable, so that threads may share one.
///
/// Text is UTF-8. Other bytes become U+FFFD, one for each maximal prefix of a character (Unicode 15,
/// section 3.9), before text is split and after tokens are joined; only the byte tokenizer keeps them.
class Tokenizer {
 public:
  virtual ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;             ///< shared by reference
  Tokenizer& operator=(const Tokenizer&) = delete;  ///< shared by reference

  /// The tokens of `text`, without the beginning-of-text token. A special token that is spelled out in
  /// `text` is treated as plain text: safe for text of any origin.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// The tokens of `text`, which may contain special tokens: `<|im_start|>user`. For text that a program wrote;
  /// use `encode_chat` if others wrote a part of it.
  virtual std::vector<std::int32_t> encode_with_special(std::string_view text) const = 0;

  /// The tokens of a conversation. Special tokens are found only where a piece of the template takes part; those
  /// that messages spell out are plain text.
  /// \param pieces from `chat_prompt`
  virtual std::vector<std::int32_t> encode_chat(std::span<const ChatPiece> pieces) const = 0;

  /// The text of tokens. Special tokens, and ids without a token, add nothing.
  std::string decode(std::span<const std::int32_t> ids) const;

  /// The bytes of tokens, before anything that is not UTF-8 is replaced.
  std::string decode_bytes(std::span<const std::int32_t> ids) const;

  /// The bytes that a token adds to a text; empty for special tokens and ids without a token.
  /// \param id       the token
  /// \param at_start whether the text is still empty: many vocabularies drop a space there
  virtual std::string token_bytes(std::int32_t id, bool at_start) const = 0;

  /// One more than the largest id. A model's embedding table may be longer.
  virtual std::int64_t vocab_size() const = 0;

  /// The token as the vocabulary spells it (`▁Once`, `Ġtime`, `<0x0A>`, `<|im_end|>`); empty for ids without a
  /// token.
  virtual std::string piece(std::int32_t id) const = 0;

  /// The id of a token, given as the vocabulary spells it.
  virtual std::optional<std::int32_t> id_of(std::string_view piece) const = 0;

  /// The beginning-of-text token, if there is one.
  std::optional<std::int32_t> bos() const { return m_bos; }
  /// The tokens that end a text; may be empty.
  const std::vector<std::int32_t>& eos() const { return m_eos; }
  /// Whether the published tokenizer puts `bos()` before a text: a prompt should then begin with it.
  bool adds_bos() const { return m_adds_bos; }
  /// The chat template that was published with the tokenizer, or an empty string
  /// (kformer/text/chat_template.hpp).
  const std::string& chat_template() const { return m_chat_template; }
  /// Identifies the vocabulary and its rules, of tokenizers from `open_tokenizer` and `make_tokenizer`: a hash
  /// of what they were read from. Empty for others.
  const std::string& fingerprint() const { return m_fingerprint; }

 protected:
  Tokenizer() = default;

  std::optional<std::int32_t> m_bos;  ///< see bos()
  std::vector<std::int32_t> m_eos;    ///< see eos()
  bool m_adds_bos = false;            ///< see adds_bos()
  std::string m_chat_template;        ///< see chat_template()
  std::string m_fingerprint;          ///< see fingerprint()
};

/// Opens a tokenizer.
/// \param format what is at `path`
/// \param path   sentencepiece: `tokenizer.model`; hf: `tokenizer.json`, or the folder it lies in; gguf: the
///               checkpoint; automatic: any of these; byte: not used. `tokenizer_config.json` and
///               `generation_config.json` beside the file are read where they exist.
/// \throws FileError naming the file and what is wrong with it
/// \throws NotSupported naming the component of the tokenizer that is unsupported or that this build
///         lacks
std::unique_ptr<const Tokenizer> open_tokenizer(TokenizerFormat format, const std::filesystem::path& path);

/// How a tokenizer writes conversations: with its own spellings of the beginning and the end of text, where it has
/// them.
/// \param tokenizer of the model
/// \param style     none: that of its chat template
/// \throws NotSupported as `ChatTemplate::recognise`, if there is no style
ChatTemplate chat_template_of(const Tokenizer& tokenizer, std::optional<ChatStyle> style = {});

/// Text that grows token by token, as it is generated. It always returns whole characters: the bytes of
/// an unfinished one wait for the next token. Joined, the results equal those of `Tokenizer::decode` for
/// all its tokens.
class TokenStream {
 public:
  /// \param tokenizer must outlive the stream
  /// \param before    earlier tokens, such as a prompt: their text is not returned
  explicit TokenStream(const Tokenizer& tokenizer, std::span<const std::int32_t> before = {});

  /// Adds a token; returns the text that it completes.
  std::string push(std::int32_t id);

  /// Ends the text; returns U+FFFD for an unfinished character, otherwise nothing.
  std::string finish();

 private:
  const Tokenizer* m_tokenizer;
  std::string m_unfinished;
  bool m_at_start = true;
};

}  // namespace kformer
