// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "io/schema/diagnostics.hpp"

namespace kformer::Impl::schema {

/// The keys of a published config.json that the table [model] has, as entries of that table. Other keys and
/// nulls are left out; `use_sliding_window`, the older `type` of a rope scaling and the biases that every qwen2
/// has are translated. Faults go to `diagnostics`, with `named_at` where the file cannot be read.
Table read_layer_config(const std::filesystem::path& path, const Place& named_at, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
