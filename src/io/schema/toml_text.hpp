// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/enum_names.hpp"

/// \file
/// Values as TOML. The serializer of toml++ 3.3 prints 3e-4 as 0.00029999999999999997; here a float has the
/// fewest digits that read back to the same bits.

namespace kformer::Impl::schema {

std::string toml_text(bool value);
std::string toml_text(std::int64_t value);
std::string toml_text(double value);
std::string toml_text(std::string_view value);
inline std::string toml_text(const std::string& value) { return toml_text(std::string_view(value)); }
inline std::string toml_text(const std::filesystem::path& value) { return toml_text(value.string()); }

template <class Enum>
  requires std::is_enum_v<Enum>
std::string toml_text(Enum value) {
  return toml_text(name_of(value));
}

/// Empty if there is no value.
template <class T>
std::string toml_text(const std::optional<T>& value) {
  return value ? toml_text(*value) : std::string();
}

template <class T>
std::string toml_text(const std::vector<T>& values) {
  constexpr std::size_t long_line = 1000;
  std::string text = "[";
  std::size_t line_begin = 0;
  for (const auto& value : values) {
    const std::string item = toml_text(value);
    if (text.size() > 1) text += ",";
    if (text.size() + item.size() - line_begin > long_line) {
      text += "\n";
      line_begin = text.size();
    } else if (text.size() > 1) {
      text += " ";
    }
    text += item;
  }
  return text + "]";
}

}  // namespace kformer::Impl::schema
