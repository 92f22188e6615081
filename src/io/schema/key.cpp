// SPDX-License-Identifier: MIT
#include "io/schema/key.hpp"

#include <fmt/format.h>

#include <cmath>

#include "io/schema/toml_text.hpp"

namespace kformer::Impl::schema {
namespace {

std::string range_words(const Range& range) {
  if (range.min && range.min == range.max) return fmt::format(" equal to {}", *range.min);
  if (range.min && range.max)
    return fmt::format(" in {}{}, {}]", range.above ? '(' : '[', *range.min, *range.max);
  if (range.min) return fmt::format(" {} {}", range.above ? ">" : ">=", *range.min);
  if (range.max) return fmt::format(" <= {}", *range.max);
  return "";
}

std::string choice_words(const std::vector<std::string_view>& choices) {
  std::string text = choices.size() > 1 ? "one of " : "";
  for (const auto choice : choices) text += (choice == choices.front() ? "" : ", ") + toml_text(choice);
  return text;
}

}  // namespace

bool within(double value, const Range& range) {
  if (!std::isfinite(value)) return false;
  if (range.min && (range.above ? value <= *range.min : value < *range.min)) return false;
  return !(range.max && value > *range.max);
}

std::string words_for(const Type& type, const Range& range) {
  if (!type.choices.empty()) return choice_words(type.choices);
  switch (type.kind) {
    case Kind::boolean:
      return "boolean";
    case Kind::integer:
      return "integer" + range_words(range);
    case Kind::real:
      return "number" + range_words(range);
    case Kind::path:
      return "path";
    case Kind::bytes:
      return "number of bytes, or a text such as \"80GB\" or \"74.5GiB\"";
    case Kind::string:
      break;
  }
  return "string";
}

std::string expectation(const Type& type, const Range& range) {
  const char* article = !type.choices.empty() ? "" : type.kind == Kind::integer ? "an " : "a ";
  return article + words_for(type, range) + (type.list ? " or an array of them" : "");
}

}  // namespace kformer::Impl::schema
