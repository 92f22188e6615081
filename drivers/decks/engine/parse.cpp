// SPDX-License-Identifier: MIT
#include "decks/engine/parse.hpp"

// toml++ is used only in this file and header-only, whatever its package compiles into a shared library: only
// so do the two limits below hold, which turn `[[[` and deep nesting into ordinary errors instead of an abort.
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/toml.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "decks/engine/limits.hpp"

namespace kformer::Impl::schema {
namespace {

using SourcePtr = std::shared_ptr<const SourceText>;

Place place_of(const SourcePtr& source, const toml::source_region& region) {
  const bool one_line = region.end.line == region.begin.line && region.end.column > region.begin.column;
  return {source, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column),
          one_line ? static_cast<int>(region.end.column - region.begin.column) : 1};
}

Value to_value(const toml::node& node, const SourcePtr& source);

Table to_table(const toml::table& table, const SourcePtr& source) {
  Table entries;
  for (auto&& [key, node] : table)
    entries.push_back({std::string(key.str()), place_of(source, key.source()), to_value(node, source)});
  return entries;
}

Value to_value(const toml::node& node, const SourcePtr& source) {
  Value value{Timestamp{}, place_of(source, node.source())};
  if (const auto* boolean = node.as_boolean()) {
    value.data = boolean->get();
  } else if (const auto* integer = node.as_integer()) {
    value.data = integer->get();
  } else if (const auto* real = node.as_floating_point()) {
    value.data = real->get();
  } else if (const auto* text = node.as_string()) {
    value.data = text->get();
  } else if (const auto* table = node.as_table()) {
    value.data = to_table(*table, source);
  } else if (const auto* array = node.as_array()) {
    Array elements;
    for (const auto& element : *array) elements.push_back(to_value(element, source));
    value.data = std::move(elements);
  }
  return value;
}

struct BareWord {
  std::string key;
  std::string word;
  int column;
};

// Splits "table.key=word"; nothing if the value opens a string or an array, whose own fault is the better
// message.
std::optional<BareWord> as_bare_word(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return std::nullopt;
  const std::size_t begin = text.find_first_not_of(" \t", equals + 1);
  if (begin == std::string::npos || std::string_view("\"'[").find(text[begin]) != std::string_view::npos)
    return std::nullopt;
  const std::size_t end = text.find_last_not_of(" \t") + 1;
  return BareWord{text.substr(0, equals), text.substr(begin, end - begin), static_cast<int>(begin) + 1};
}

Entry& innermost(Table& table) {
  Entry* entry = &table.front();
  while (auto* below = std::get_if<Table>(&entry->value.data)) entry = &below->front();
  return *entry;
}

// Places refer to `source`, of which `text` is a variant with the same keys in the same columns.
std::optional<Table> parse_text(std::string_view text, const SourcePtr& source, Diagnostics& diagnostics) {
  try {
    return to_table(toml::parse(text), source);
  } catch (const toml::parse_error& error) {
    diagnostics.error(place_of(source, error.source()), std::string(error.description()));
    return std::nullopt;
  }
}

}  // namespace

std::optional<Table> parse_toml(const SourcePtr& source, Diagnostics& diagnostics) {
  if (!within_limits(source, diagnostics) || !bare_text_is_ascii(source, source->text, diagnostics))
    return std::nullopt;
  return parse_text(source->text, source, diagnostics);
}

std::optional<Table> parse_override(const SourcePtr& source, Diagnostics& diagnostics) {
  const std::string& text = source->text;
  if (!within_limits(source, diagnostics) ||
      !bare_text_is_ascii(source, std::string_view(text).substr(0, text.find('=')), diagnostics))
    return std::nullopt;
  Diagnostics faults;
  if (text.find_first_of("\r\n") == std::string::npos && text.find('=') != std::string::npos) {
    // Letters beyond ASCII make a bare word.
    if (bare_text_is_ascii(source, text, faults)) {
      auto table = parse_text(text, source, faults);
      if (table && !table->empty()) return table;
    }
    if (const auto bare = as_bare_word(text)) {
      Diagnostics key_faults;
      auto table = parse_text(bare->key + "=0", source, key_faults);
      if (table && !table->empty()) {
        innermost(*table).value = {bare->word, {source, 1, bare->column, static_cast<int>(bare->word.size())}};
        return table;
      }
    }
  }
  if (faults.empty()) faults.error({source, 1, 1, 1}, "--set expects table.key=value on one line");
  diagnostics.append(std::move(faults));
  return std::nullopt;
}

}  // namespace kformer::Impl::schema
