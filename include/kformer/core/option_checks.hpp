// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <type_traits>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/error.hpp"

/// \file
/// Checks of options, under the name of what the user called. Free of Kokkos.

namespace kformer::Impl {

/// Whether an option has one of the values that its type names.
template <NamedEnum Enum>
constexpr bool is_enumerator(Enum value) {
  const auto number = static_cast<std::underlying_type_t<Enum>>(value);
  return number >= 0 && static_cast<std::size_t>(number) < names_of<Enum>.size();
}

/// What is wrong with an option that `is_enumerator` refuses, and what its values are.
template <NamedEnum Enum>
std::string not_an_enumerator(const char* option, Enum value) {
  return std::string(option) + " has the value " +
         std::to_string(static_cast<std::underlying_type_t<Enum>>(value)) +
         ", which its type does not name; choose one of: " + list_of_names<Enum>();
}

/// Requires that an option has one of the values that its type names.
/// \param function the public function or class, without `kformer::`
/// \param option   the option's name
/// \throws NotSupported
template <NamedEnum Enum>
void require_enumerator(const char* function, const char* option, Enum value) {
  if (!is_enumerator(value))
    throw NotSupported(std::string("kformer::") + function + ": " + not_an_enumerator(option, value));
}

/// The same under the name of `Operands`.
template <class Checked, NamedEnum Enum>
  requires requires(const Checked& all) { all.require_option(false, ""); }
void require_enumerator(const Checked& all, const char* option, Enum value) {
  if (!is_enumerator(value)) all.require_option(false, not_an_enumerator(option, value));
}

/// Runs `call`. Its errors name `function`, which the user called, in place of the function inside that found them.
/// \param function the public function or class, without `kformer::`
/// \throws DimensionMismatch and NotSupported of `call`
template <class F>
decltype(auto) on_behalf_of(const char* function, const F& call) {
  const auto text = [&](const Error& error) {
    std::string found = error.what();
    const auto end = found.find(": ");
    if (!found.starts_with("kformer::") || end == std::string::npos) return found;
    return std::string("kformer::") + function + found.substr(end);
  };
  try {
    return call();
  } catch (const DimensionMismatch& error) {
    throw DimensionMismatch(text(error));
  } catch (const NotSupported& error) {
    throw NotSupported(text(error));
  }
}

}  // namespace kformer::Impl
