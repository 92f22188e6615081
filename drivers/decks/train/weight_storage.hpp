// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "kformer/core/quantized_format.hpp"
#include "kformer/core/types/names.hpp"

/// \file
/// How a deck wants matrices of weights stored.

namespace kformer {

/// How matrices of weights are stored; same: as the checkpoint has them or, without one, as dense numbers; then
/// `quantized_formats` in order.
enum class WeightStorage { same, q8_0, q4_0, q4_1, tq2_0, tq1_0, nf4 };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 7> names_of<WeightStorage> = {"same",  "q8_0",  "q4_0", "q4_1",
                                                                            "tq2_0", "tq1_0", "nf4"};

/// The format, if it names one.
inline std::optional<QuantizedFormat> format_of(WeightStorage storage) {
  static_assert(names_of<WeightStorage>.size() == 1 + std::size(quantized_formats));
  if (storage == WeightStorage::same) return {};
  return quantized_formats[static_cast<std::size_t>(storage) - 1];
}

}  // namespace kformer
