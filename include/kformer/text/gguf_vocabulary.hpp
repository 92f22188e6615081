// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kformer/text/tokenizer.hpp"

/// \file
/// The vocabulary that a GGUF file carries in its metadata, under `tokenizer.ggml`.

namespace kformer {

class GgufFile;

/// The tokenizer metadata of a GGUF file.
struct GgufVocabulary {
  std::string model;                     ///< tokenizer.ggml.model: "gpt2" or "llama"
  std::string pre;                       ///< tokenizer.ggml.pre: how text is split before merging; "gpt2" only
  std::vector<std::string> tokens;       ///< tokenizer.ggml.tokens
  std::vector<float> scores;             ///< tokenizer.ggml.scores, one per token; "llama" only
  std::vector<std::int64_t> types;       ///< tokenizer.ggml.token_type, one per token, or empty: all normal
  std::vector<std::string> merges;       ///< tokenizer.ggml.merges, "left right", best first; "gpt2" only
  std::optional<std::int64_t> bos;       ///< tokenizer.ggml.bos_token_id
  std::optional<std::int64_t> eos;       ///< tokenizer.ggml.eos_token_id
  std::optional<std::int64_t> eot;       ///< tokenizer.ggml.eot_token_id: ends a turn of a conversation
  std::optional<std::int64_t> unk;       ///< tokenizer.ggml.unknown_token_id
  std::optional<bool> add_bos;           ///< tokenizer.ggml.add_bos_token
  std::optional<bool> add_space_prefix;  ///< tokenizer.ggml.add_space_prefix; "llama" only
  std::string chat_template;             ///< tokenizer.chat_template
};

/// The vocabulary of a GGUF file.
/// \throws FileError naming the key whose value has another type, or if there is no vocabulary
GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

/// A tokenizer on the vocabulary of a GGUF file. Text is not normalised, as in llama.cpp.
/// \param vocabulary the metadata
/// \param source     name of the file in error texts
/// \throws FileError naming the file and what is wrong with its vocabulary
/// \throws NotSupported for an unsupported `model` or `pre`
std::unique_ptr<const Tokenizer> make_tokenizer(const GgufVocabulary& vocabulary, const std::string& source);

}  // namespace kformer
