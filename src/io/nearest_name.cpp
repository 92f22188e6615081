// SPDX-License-Identifier: MIT
#include "io/nearest_name.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kformer::Impl {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view word, const std::vector<std::string>& names,
                                       std::size_t limit) {
  // Longer words than any sensible name would make the table of the edit distance quadratic in a hostile input.
  constexpr std::size_t longest = 256;
  std::vector<std::pair<std::size_t, std::string>> ranked;
  if (word.size() > longest) return {};
  for (const auto& name : names) {
    if (name.size() > longest) continue;
    const std::size_t distance = edit_distance(word, name);
    if (3 * distance <= 1 + std::max(word.size(), name.size())) ranked.emplace_back(distance, name);
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min(ranked.size(), limit));
  std::vector<std::string> nearest;
  for (auto& [distance, name] : ranked) nearest.push_back(std::move(name));
  return nearest;
}

std::string suggest_names(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t most_listed = 12;
  std::string text;
  if (const auto nearest = nearest_names(word, names); !nearest.empty()) {
    for (const auto& name : nearest) text += (text.empty() ? "; did you mean '" : " or '") + name + "'";
    return text + "?";
  }
  if (names.empty()) return "; there are none";
  for (std::size_t i = 0; i < std::min(names.size(), most_listed); ++i)
    text += (i == 0 ? "; known: " : ", ") + names[i];
  return text + (names.size() > most_listed ? ", ..." : "");
}

}  // namespace kformer::Impl
