// SPDX-License-Identifier: MIT
#include "decks/engine/deck_keys.hpp"

#include <fmt/format.h>

#include <sstream>

namespace kformer {

DeckKeys keys_of(const std::string& resolved) {
  DeckKeys keys;
  std::map<std::string, int> tables;
  std::string table;
  std::string* value = nullptr;  // of the last key
  std::istringstream lines(resolved);
  for (std::string line; std::getline(lines, line);) {
    if (value != nullptr && value->ends_with(',')) {
      *value += ' ' + line;  // a long list
    } else if (line.starts_with("[[")) {
      const std::string name = line.substr(2, line.find(']') - 2);
      table = fmt::format("{}[{}].", name, tables[name]++);
    } else if (line.starts_with('[')) {
      table = line.substr(1, line.find(']') - 1) + '.';
    } else if (const std::size_t equals = line.find(" = "); equals != std::string::npos) {
      value = &keys[table + line.substr(0, equals)];
      *value = line.substr(equals + 3);
    }
  }
  return keys;
}

std::optional<DeckDifference> difference_of(const DeckKeys& first, const DeckKeys& second) {
  const auto value_in = [](const DeckKeys& keys, const std::string& key) {
    const auto found = keys.find(key);
    return found == keys.end() ? "not there" : found->second;
  };
  DeckKeys all = first;
  all.insert(second.begin(), second.end());
  for (const auto& [key, any] : all) {
    DeckDifference difference{key, value_in(first, key), value_in(second, key)};
    if (difference.value != difference.other) return difference;
  }
  return {};
}

}  // namespace kformer
