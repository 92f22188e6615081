// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// What learning from pairs of completions minimises.
enum class PreferenceKind {
  sigmoid,  ///< DPO: −log σ of the difference of rewards (arXiv:2305.18290)
  ipo,      ///< its square distance from a margin, per token (arXiv:2310.12036)
  hinge     ///< what it lacks to 1 (arXiv:2305.10425, of ratios: arXiv:2309.06657)
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 3> names_of<PreferenceKind> = {"sigmoid", "ipo", "hinge"};

}  // namespace kformer
