// SPDX-License-Identifier: MIT
#include <utility>
#include <vector>

#include "decks/engine/deck.hpp"
#include "io/nearest_name.hpp"

namespace kformer {

std::string output_file_name(std::string_view pattern, const OutputPlaceholders& values) {
  const std::vector<std::pair<std::string, const std::string*>> known{
      {"name", &values.name}, {"kind", &values.kind}, {"date", &values.date}, {"jobid", &values.jobid}};
  std::string text;
  while (!pattern.empty()) {
    const std::size_t open = pattern.find_first_of("{}");
    text += pattern.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = pattern.find_first_of("{}", open + 1);
    if (pattern[open] == '}' || close == std::string_view::npos || pattern[close] == '{')
      throw DeckError("unmatched brace in the name of the output file");
    const std::string name(pattern.substr(open + 1, close - open - 1));
    const std::string* value = nullptr;
    std::vector<std::string> names;
    for (const auto& [key, replacement] : known) {
      names.push_back(key);
      if (key == name) value = replacement;
    }
    if (value == nullptr)
      throw DeckError("unknown placeholder '{" + name + "}' in the name of the output file" +
                      Impl::suggest_names(name, names));
    text += *value;
    pattern.remove_prefix(close + 1);
  }
  return text;
}

}  // namespace kformer
