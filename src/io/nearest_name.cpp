// SPDX-License-Identifier: MIT
#include "io/nearest_name.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
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

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  while (!name.empty()) {
    const std::size_t end = name.find('_');
    parts.push_back(name.substr(0, end));
    name.remove_prefix(end == std::string_view::npos ? name.size() : end + 1);
  }
  return parts;
}

/// How many parts a name has besides those of `word`, which it has in this order; nothing if it lacks one:
/// "max_tokens" in "max_new_tokens".
std::optional<std::size_t> parts_besides(std::string_view word, std::string_view name) {
  const auto wanted = parts_of(word), parts = parts_of(name);
  std::size_t found = 0;
  for (const std::string_view part : parts)
    if (found < wanted.size() && part == wanted[found]) ++found;
  if (wanted.size() < 2 || found < wanted.size()) return std::nullopt;
  return parts.size() - wanted.size();
}

/// What other libraries call a type that has a shorter name here, and the key with the type.
std::string_view synonym_of(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 29> names{
      {{"float32", "f32"},
       {"float", "f32"},
       {"fp32", "f32"},
       {"single", "f32"},
       {"float64", "f64"},
       {"fp64", "f64"},
       {"double", "f64"},
       {"bfloat16", "bf16"},
       {"float16", "f16"},
       {"fp16", "f16"},
       {"half", "f16"},
       {"bfloat", "bf16"},
       {"dtype", "storage"},
       {"torch.float32", "f32"},
       {"torch.bfloat16", "bf16"},
       {"torch.float16", "f16"},
       {"fwd", "forward"},
       {"bwd", "backward"},
       {"batch_size", "batch"},
       {"d_model", "hidden_size"},
       {"d_ff", "intermediate_size"},
       {"n_layers", "num_hidden_layers"},
       {"n_heads", "num_attention_heads"},
       {"n_kv_heads", "num_key_value_heads"},
       {"num_kv_heads", "num_key_value_heads"},
       {"learning_rate", "lr"},
       {"lr", "learning_rate"},
       {"n_predict", "max_new_tokens"},
       {"flash_attention", "flash"}}};
  const auto found = std::ranges::find(names, word, &std::pair<std::string_view, std::string_view>::first);
  return found == names.end() ? word : found->second;
}

/// Edits that make a name of a word, of which those of a synonym, of the case, or of parts count little.
std::size_t distance_between(std::string_view word, std::string_view name) {
  const std::string small = lower(word);
  if (is_same_name(small, name)) return 0;
  const std::size_t distance = edit_distance(small, lower(name));
  const auto besides = parts_besides(small, name);
  return besides ? std::min(distance, *besides) : distance;
}

}  // namespace

std::string lower(std::string_view word) {
  std::string text(word);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

bool is_same_name(std::string_view word, std::string_view name) {
  const std::string small = lower(word);
  return small == lower(name) || synonym_of(small) == name;
}

std::vector<std::string> nearest_names(std::string_view word, const std::vector<std::string>& names,
                                       std::size_t limit) {
  // Longer words than any sensible name would make the table of the edit distance quadratic in a hostile input.
  constexpr std::size_t longest = 256;
  std::vector<std::pair<std::size_t, std::string>> ranked;
  if (word.size() > longest) return {};
  for (const auto& name : names) {
    if (name.size() > longest) continue;
    const std::size_t distance = distance_between(word, name);
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
