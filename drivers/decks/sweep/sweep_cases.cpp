// SPDX-License-Identifier: MIT
#include "decks/sweep/sweep_cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kformer::Impl::schema {

bool stands_for_others(const std::string& space) { return space == "all" || space == "default"; }

bool leaves_spaces_to_build(const std::vector<std::string>& spaces) {
  return spaces.size() == 1 && stands_for_others(spaces.front());
}

void require_built(const char* key, const std::string& space, const std::vector<std::string>& built_spaces) {
  if (std::find(built_spaces.begin(), built_spaces.end(), space) == built_spaces.end())
    throw DeckError(
        fmt::format("'{}' asks for \"{}\", but this build has: {}", key, space, fmt::join(built_spaces, ", ")));
}

bool advance(std::vector<std::size_t>& index, const std::vector<std::size_t>& lengths) {
  for (std::size_t axis = lengths.size(); axis-- > 0;) {
    if (++index[axis] < lengths[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

bool fit_together(const std::vector<std::size_t>& lengths) {
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  return std::all_of(lengths.begin(), lengths.end(), [&](std::size_t n) { return n == 1 || n == longest; });
}

}  // namespace kformer::Impl::schema
