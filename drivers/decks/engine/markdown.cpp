// SPDX-License-Identifier: MIT
#include "decks/engine/markdown.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kformer::Impl::schema {
namespace {

std::string default_column(const Key& key, const std::string& default_value) {
  if (key.required) return "required";
  if (key.default_text[0] != '\0') return key.default_text;
  return "`" + default_value + "`";
}

}  // namespace

std::string markdown_row(const Key& key, const Type& type, const std::string& default_value) {
  return fmt::format("| `{}` | {}{} | {} | {} | {} |\n", key.name, words_for(type, key.range),
                     type.list ? ", or array" : "", default_column(key, default_value), key.unit, key.help);
}

std::string markdown_heading(const std::string& name, const char* help) {
  return fmt::format("\n### {}\n\n{}\n\n| key | value | default | unit | meaning |\n|---|---|---|---|---|\n",
                     name.empty() ? "Top level" : "[" + name + "]", help);
}

std::string markdown_list(const std::string& name, const char* help, const std::vector<std::string>& names) {
  return fmt::format("\n### [[{}]]\n\n{}\n\nKeys, each with one value or an array: `{}`.\n", name, help,
                     fmt::join(names, "`, `"));
}

}  // namespace kformer::Impl::schema
