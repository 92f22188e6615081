// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "kformer/io/model_table.hpp"

namespace kformer::Impl {

/// read_model_config() on a text in memory.
/// \param path name in error texts, and the `config` of the table
LanguageModelTable parse_model_config(std::string text, const std::filesystem::path& path);

/// read_model_config() without what follows from the keys: num_key_value_heads and head_dim may be 0, and contradictions
/// between keys are not judged. For callers that put other keys over it, and complete it then.
LanguageModelTable read_model_keys(const std::filesystem::path& path);

/// The table of a configuration with the keys of config.json files.
/// \param source name in error texts
/// \throws FileError as read_model_config() does
LanguageModelTable model_of_config(nlohmann::json config, const std::string& source);

/// complete_model() on the layer, and the same for the keys of the whole model.
/// \returns the contradictions; empty for a valid table
std::vector<ModelFault> complete_language_model(LanguageModelTable& model);

}  // namespace kformer::Impl
