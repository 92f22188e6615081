// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// The course of the learning rate after the warm-up.
enum class ScheduleKind {
  constant,  ///< it stays
  linear,    ///< a straight line to the least rate
  cosine,    ///< half a cosine wave to the least rate (arXiv:1608.03983)
  wsd        ///< it stays, then a straight line to the least rate (warm-up, stable, decay; arXiv:2404.06395)
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 4> names_of<ScheduleKind> = {"constant", "linear", "cosine",
                                                                           "wsd"};

}  // namespace kformer
