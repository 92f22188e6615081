// SPDX-License-Identifier: MIT
#include "data/lines/json_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/json_depth.hpp"
#include "io/utf8.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::data {
namespace {

using nlohmann::json;

/// Copies and writers of JSON call themselves for each level.
constexpr int deepest = 64;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

void JsonLine::refuse(const std::string& what) const {
  throw FileError(fmt::format("'{}', line {}: {}", m_source, m_number, what));
}

void JsonLine::refuse_line(const std::string& what) const { refuse(what + "; " + m_expected); }

json JsonLine::parse(std::string_view text) const {
  if (!is_shallow_json(text, deepest))
    refuse(fmt::format("the line is nested more than {} levels deep", deepest));
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    refuse_line(fmt::format("the line is not JSON, at byte {}", error.byte));
  } catch (const json::out_of_range&) {
    refuse("a number is beyond the range of doubles");
  }
}

void JsonLine::read(const std::function<void()>& read) const {
  try {
    read();
  } catch (const NotSupported& error) {
    refuse(error.what());
  }
}

void for_each_line(std::string_view contents, const std::string& source, const char* expected,
                   const std::function<void(const JsonLine&, std::string_view)>& read) {
  std::string_view rest = without_byte_order_mark(contents);
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    if (!is_blank(text)) read(JsonLine(source, number, expected), text);
  }
}

}  // namespace kformer::Impl::data
