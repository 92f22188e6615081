// SPDX-License-Identifier: MIT
#pragma once

#include "text/hf/configs.hpp"
#include "text/hf/node.hpp"
#include "text/tokenizer/pipeline.hpp"

/// \file
/// The members of a tokenizer.json, read into the parts of a tokenizer.

namespace kformer::Impl::tokenizers {

/// "model": vocabulary and merges.
void read_bpe_model(const Node& root, Pipeline& parts);
/// "normalizer".
void read_normalizer(const Node& root, Pipeline& parts);
/// "added_tokens", behind the normalizer, which changes the spelling of some.
void read_added_tokens(const Node& root, Pipeline& parts);
/// "pre_tokenizer".
void read_pre_tokenizer(const Node& root, Pipeline& parts);
/// "decoder".
void read_decoder(const Node& root, Pipeline& parts);
/// "post_processor".
/// \returns whether its template says how a text begins
bool read_post_processor(const Node& root, Pipeline& parts);
/// Properties from the files beside it.
void take_configs(const TokenizerConfigs& configs, bool has_template, Pipeline& parts);

/// A pattern: {"String": ...} or {"Regex": ...}.
Finder read_pattern(const Node& pattern);

}  // namespace kformer::Impl::tokenizers
