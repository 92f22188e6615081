// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// Storage of the optimizer states; see `AdamWParameter`.
enum class OptimizerStates {
  full,      ///< compute_t<T>
  eight_bit  ///< 8 bits per number and a scale per 256 numbers; not for double
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<OptimizerStates> = {"full", "int8"};

}  // namespace kformer
