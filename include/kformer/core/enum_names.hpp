// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kformer/core/types/names.hpp"

namespace kformer {

/// An enumeration with named enumerators.
template <class Enum>
concept NamedEnum = (names_of<Enum>.size() > 0);

/// The name of an enumerator in decks, results and messages.
template <NamedEnum Enum>
constexpr std::string_view name_of(Enum value) {
  return names_of<Enum>[static_cast<std::size_t>(value)];
}

/// The names of all enumerators, separated by commas.
template <NamedEnum Enum>
std::string list_of_names() {
  std::string names;
  for (const std::string_view name : names_of<Enum>) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace kformer
