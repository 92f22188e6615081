// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/schema/diagnostics.hpp"

/// \file
/// What all readers of published config.json files share.

namespace kformer::Impl::schema {

/// The object in the text of a config.json, or nothing, with the fault in `diagnostics`.
std::optional<nlohmann::json> parse_config(const std::shared_ptr<SourceText>& source, Diagnostics& diagnostics);

/// Says in the keys of `ModelTable` what files say in others: `use_sliding_window`, the older `type` of a rope
/// scaling, and the biases that every qwen2 has.
void translate_config(nlohmann::json& config);

/// Leaves out keys that are null or none of `known`.
void keep_known(nlohmann::json& object, const std::vector<std::string>& known);

/// The entries of an object, all of them at `place`.
Table to_table(const nlohmann::json& object, const Place& place);

}  // namespace kformer::Impl::schema
