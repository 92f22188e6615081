// SPDX-License-Identifier: MIT
#include "io/schema/tree.hpp"

#include <algorithm>
#include <utility>

#include "io/schema/toml_text.hpp"

namespace kformer::Impl::schema {

Place place_of_byte(const std::shared_ptr<const SourceText>& source, std::size_t offset) {
  const std::string_view before = std::string_view(source->text).substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;
  return {source, static_cast<int>(line), static_cast<int>(column), 1};
}

const Entry* find(const Table& table, std::string_view key) {
  const auto entry = std::find_if(table.begin(), table.end(), [&](const Entry& e) { return e.key == key; });
  return entry == table.end() ? nullptr : &*entry;
}

Entry* find(Table& table, std::string_view key) {
  const auto entry = std::find_if(table.begin(), table.end(), [&](const Entry& e) { return e.key == key; });
  return entry == table.end() ? nullptr : &*entry;
}

const Entry* find_path(const Table& table, const std::vector<std::string>& path) {
  const Table* at = &table;
  const Entry* entry = nullptr;
  for (const auto& key : path) {
    if (at == nullptr) return nullptr;
    entry = find(*at, key);
    if (entry == nullptr) return nullptr;
    at = std::get_if<Table>(&entry->value.data);
  }
  return entry;
}

void merge(Table& base, Table over) {
  for (auto& entry : over) {
    Entry* below = find(base, entry.key);
    if (below == nullptr) {
      base.push_back(std::move(entry));
      continue;
    }
    auto* lower = std::get_if<Table>(&below->value.data);
    auto* upper = std::get_if<Table>(&entry.value.data);
    if (lower != nullptr && upper != nullptr)
      merge(*lower, std::move(*upper));
    else
      *below = std::move(entry);
  }
}

std::string shown(const Value& value) {
  struct Show {
    std::string operator()(bool v) const { return "boolean " + toml_text(v); }
    std::string operator()(std::int64_t v) const { return "integer " + toml_text(v); }
    std::string operator()(double v) const { return "float " + toml_text(v); }
    std::string operator()(const std::string& v) const { return "string " + toml_text(v); }
    std::string operator()(const Timestamp&) const { return "a date or time"; }
    std::string operator()(const Array&) const { return "an array"; }
    std::string operator()(const Table&) const { return "a table"; }
  };
  return std::visit(Show{}, value.data);
}

}  // namespace kformer::Impl::schema
