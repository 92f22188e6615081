// SPDX-License-Identifier: MIT
#include "io/schema/diagnostics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "io/nearest_name.hpp"
#include "io/utf8.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::schema {
namespace {

// Longer lines would drown the message they illustrate.
constexpr std::size_t longest_quoted_line = 200;

std::string line_of(const std::string& text, int number) {
  std::size_t begin = 0;
  for (int line = 1; line < number; ++line) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return {};
    ++begin;
  }
  std::string line = text.substr(begin, text.find('\n', begin) - begin);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return to_utf8(line);
}

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }

// Tabs are kept, so that the caret is under its place for any tab width.
std::string padding_to(const std::string& line, int column) {
  std::string padding;
  for (const char c : line) {
    if (static_cast<int>(padding.size()) == column - 1) break;
    if (starts_code_point(c)) padding += c == '\t' ? '\t' : ' ';
  }
  padding.resize(std::max<std::size_t>(padding.size(), static_cast<std::size_t>(column - 1)), ' ');
  return padding;
}

std::string quoted(const Place& place, const std::string& hint) {
  const std::string line = place.line > 0 ? line_of(place.source->text, place.line) : std::string();
  if (line.empty() || line.size() > longest_quoted_line || place.length == 0)
    return hint.empty() ? "" : fmt::format("      | {}\n", hint);
  const auto code_points = static_cast<int>(std::count_if(line.begin(), line.end(), starts_code_point));
  const int underlined = std::clamp(place.length, 1, std::max(1, code_points - place.column + 1));
  return fmt::format("{:5} | {}\n      | {}^{}{}{}\n", place.line, line, padding_to(line, place.column),
                     std::string(static_cast<std::size_t>(underlined - 1), '~'), hint.empty() ? "" : "  ",
                     hint);
}

}  // namespace

void Diagnostics::add(Fault fault) {
  if (m_faults.size() < most_listed)
    m_faults.push_back(std::move(fault));
  else
    ++m_others;
}

void Diagnostics::error(const Place& place, std::string message, std::string hint) {
  add({place, std::move(message), std::move(hint)});
}

void Diagnostics::append(Diagnostics other) {
  for (Fault& fault : other.m_faults) add(std::move(fault));
  m_others += other.m_others;
}

std::string Diagnostics::report() const {
  std::vector<const Fault*> ordered;
  for (const auto& fault : m_faults) ordered.push_back(&fault);
  const auto key = [](const Fault* f) {
    return std::tuple(f->place.source->rank, f->place.line, f->place.column);
  };
  std::stable_sort(ordered.begin(), ordered.end(), [&](auto* a, auto* b) { return key(a) < key(b); });
  std::string text;
  for (const auto* fault : ordered)
    text += fmt::format("{}: error: {}\n{}", to_string(fault->place), fault->message,
                        quoted(fault->place, fault->hint));
  if (m_others > 0) text += fmt::format("error: faults that are not listed: {}\n", m_others);
  if (!text.empty()) text.pop_back();
  return text;
}

void Diagnostics::throw_if_any() const {
  if (!empty()) throw DeckError(report());
}

std::string to_string(const Place& place) {
  if (place.line == 0) return place.source->name;
  return fmt::format("{}:{}:{}", place.source->name, place.line, place.column);
}

std::string naming_hint(std::string_view word, std::vector<std::string> names,
                        const std::vector<std::string>& all_keys) {
  std::sort(names.begin(), names.end());
  auto meant = nearest_names(word, names, 1);
  if (meant.empty()) {
    constexpr std::size_t most_useful = 3;
    std::ranges::copy_if(all_keys, std::back_inserter(meant), [&](std::string_view key) {
      return is_same_name(word, key.substr(key.rfind('.') + 1));
    });
    if (meant.size() > most_useful) meant.clear();
  }
  const std::string known = fmt::format("known: {}", fmt::join(names, ", "));
  return meant.empty() ? known : fmt::format("did you mean '{}'?  {}", fmt::join(meant, "' or '"), known);
}

}  // namespace kformer::Impl::schema
