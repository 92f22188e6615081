// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kformer/io/adapter.hpp"

/// \file
/// `adapter_config.json`.

namespace kformer::Impl {

/// A linear map of a layer.
struct LayerMap {
  std::int64_t layer;
  Projection projection;

  /// In a model, such as "model.layers.0.self_attn.q_proj".
  std::string name() const;
};

/// What it says of ranks and scales, before the tensors show which projections have adapters.
struct AdapterConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;
  bool magnitudes = false;
  double dropout = 0;
  std::vector<std::pair<std::string, std::int64_t>> ranks;  ///< `rank_pattern`, in the order of the file
  std::vector<std::pair<std::string, double>> alphas;       ///< `alpha_pattern`, likewise
  AdapterDescription description;
  std::optional<std::vector<std::string>> modules;  ///< `target_modules`, if it is a list
  std::vector<std::string> excluded;                ///< `exclude_modules`, if it is a list
  std::optional<std::set<std::int64_t>> layers;     ///< `layers_to_transform`

  /// Whether PEFT adapts no such map. A `target_modules` that is no list is a pattern, and taken to fit the tensors.
  bool leaves_out(const LayerMap& map) const;
  /// Of the first key of the pattern that names the map, or that of all.
  std::int64_t rank_of(const LayerMap& map) const;
  double alpha_of(const LayerMap& map) const;
  /// The factor s.
  double scale_of(const LayerMap& map) const;
};

/// \throws FileError naming the file and the key
AdapterConfig read_adapter_config(const std::filesystem::path& path);

}  // namespace kformer::Impl
