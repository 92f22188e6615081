// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kformer::Impl::tokenizers {

/// Properties of a tokenizer from the files beside it.
struct TokenizerConfigs {
  std::optional<std::string> bos, eos;  ///< tokenizer_config.json, as the vocabulary spells them
  std::optional<bool> adds_bos;         ///< tokenizer_config.json: "add_bos_token"
  bool replaces_template = false;       ///< whether `adds_bos` counts more than the template of tokenizer.json
  std::vector<std::int64_t> eos_ids;    ///< generation_config.json: "eos_token_id"
  std::string chat_template;            ///< chat_template.jinja, or tokenizer_config.json
};

/// Reads tokenizer_config.json, generation_config.json and chat_template.jinja, where they exist.
/// \throws FileError if one is malformed
TokenizerConfigs read_configs(const std::filesystem::path& folder);

}  // namespace kformer::Impl::tokenizers
