// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace kformer::Impl {

/// The keys of a map from names, in its order.
template <class Map>
std::vector<std::string> key_names(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

}  // namespace kformer::Impl
