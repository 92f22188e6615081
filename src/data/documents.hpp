// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/prompt_encoder.hpp"
#include "data/token_shard.hpp"
#include "kformer/data/synthetic.hpp"
#include "kformer/text/tokenizer.hpp"

/// \file
/// Documents that are made with a tokenizer.

namespace kformer::Impl::data {

/// A file of text as one document: the beginning-of-text token, if there is one, and its tokens. The mark of byte
/// order at the beginning of the file is no text.
TokenDocuments text_document(std::string_view contents, const Tokenizer& tokenizer,
                             std::optional<std::int32_t> bos);

/// Conversations, or prompts with their completions, one JSON object in a line.
/// \throws FileError naming the line and what was expected there
TokenDocuments chat_documents(std::string_view contents, PromptEncoder& encoder, const std::string& source);

/// All samples: the beginning-of-text token, the prompt, the answer and an end-of-text token, as far as there are
/// such tokens. The last two are learnt.
TokenDocuments synthetic_documents(const SyntheticOptions& options, const Tokenizer& tokenizer,
                                   std::optional<std::int32_t> bos);

}  // namespace kformer::Impl::data
