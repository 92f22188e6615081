// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// What a cache keeps of the tokens it has seen.
enum class KvCacheKind {
  contiguous,     ///< everything, each sequence in one piece
  paged,          ///< everything, in pages that sequences share until one writes (arXiv:2309.06180)
  window,         ///< the first tokens and the last ones (arXiv:2309.17453)
  int8,           ///< everything, rounded to 8 bits with a scale per token and head
  heavy_hitters,  ///< the last tokens, and those that got the most attention (arXiv:2306.14048)
  none            ///< nothing; a program without a cache computes the whole sequence for every token
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 6> names_of<KvCacheKind> = {
    "contiguous", "paged", "window", "int8", "heavy_hitters", "none"};

}  // namespace kformer
