// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/schema/diagnostics.hpp"

/// \file
/// Shared by all readers of published config.json files.

namespace kformer::Impl::schema {

/// The object in the text of a config.json, or nothing, with the fault in `diagnostics`.
std::optional<nlohmann::json> parse_config(const std::shared_ptr<SourceText>& source, Diagnostics& diagnostics);

/// Translates other keys of files to those of `ModelTable`: `use_sliding_window`, the older `type` of a rope
/// scaling, and the biases that every qwen2 has.
void translate_config(nlohmann::json& config);

/// Drops keys that are null or not in `known`.
void keep_known(nlohmann::json& object, const std::vector<std::string>& known);

/// The entries of an object, all of them at `place`.
Table to_table(const nlohmann::json& object, const Place& place);

}  // namespace kformer::Impl::schema
