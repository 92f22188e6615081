// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// Precision of product operands that are computed but never stored, such as attention weights.
/// Operands in memory have their storage type T; sums are always computed in `compute_t<T>`.
enum class Precision {
  storage,  ///< they may be rounded to T, where hardware multiplies that type faster
  full      ///< they stay in `compute_t<T>`
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<Precision> = {"storage", "full"};

}  // namespace kformer
