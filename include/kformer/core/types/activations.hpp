// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// The activations that quantised weights are multiplied with.
enum class Activations {
  full,  ///< x as it is stored: as if W were dequantised exactly and multiplied in compute_t<T>
  int8   ///< x quantised to 8 bits: exact integer products, summed in compute_t<T>
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<Activations> = {"full", "int8"};

}  // namespace kformer
