// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <optional>

#include "io/schema/diagnostics.hpp"

namespace kformer::Impl::schema {

/// A published config.json that a deck names.
struct NamedConfig {
  std::filesystem::path path;
  Place named_at;
};

/// The file that `model.config` of a deck names, if it names one.
std::optional<NamedConfig> model_config_of(const Table& root);

/// The keys of a published config.json that the table [model] has, as entries of that table, with the defaults of the family.
/// Other keys and nulls are left out; `rope_parameters`, `use_sliding_window`, `layer_types`, the older `type` of a rope
/// scaling and the biases that every qwen2 has are translated, and layers that are not supported are faults. Faults go to `diagnostics`, with `named_at` where the file cannot be read.
Table read_layer_config(const NamedConfig& file, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
