// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kformer/io/adapter.hpp"

/// \file
/// `adapter_config.json`.

namespace kformer::Impl {

/// What it says of ranks and scales, before the tensors show which projections have adapters.
struct AdapterConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;
  bool magnitudes = false;
  double dropout = 0;
  std::map<Projection, std::int64_t> ranks;  ///< of projections that have another one
  std::map<Projection, double> alphas;       ///< likewise
  AdapterDescription description;
  std::optional<std::vector<std::string>> modules;  ///< `target_modules`, if it is a list

  /// Whether PEFT adapts it. A `target_modules` that is no list is a pattern, and taken to fit the tensors.
  bool adapts(Projection p) const;
  std::int64_t rank_of(Projection p) const;
  double alpha_of(Projection p) const;
};

/// \throws FileError naming the file and the key
AdapterConfig read_adapter_config(const std::filesystem::path& path);

}  // namespace kformer::Impl
