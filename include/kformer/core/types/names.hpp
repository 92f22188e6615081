// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <string_view>

/// \file
/// The options, formats and storage types that kernels, files and decks share: only declarations,
/// without Kokkos and without functions, so that files compiled for one instruction set may include them.

namespace kformer {

/// The names of the enumerators of `Enum` in decks, results and messages, in order. Specialised beside each
/// enumeration that has names.
template <class Enum>
inline constexpr std::array<std::string_view, 0> names_of{};

}  // namespace kformer
