// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// The attention algorithm: scores in memory, or tile by tile.
enum class AttentionAlgorithm { standard, flash };
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<AttentionAlgorithm> = {"standard", "flash"};

}  // namespace kformer
