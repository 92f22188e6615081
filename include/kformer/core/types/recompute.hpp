// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// What a layer keeps between forward and backward. Backward computes the rest again; gradients have the same
/// bits under every policy.
enum class Recompute {
  none,       ///< everything that backward reads
  pointwise,  ///< all but what one pass over memory restores: outputs of norms, the SwiGLU product
  layer,      ///< its input
  nested,     ///< not even that: the model keeps the inputs of some layers (Revolve, doi:10.1145/347837.347846)
  offload,    ///< its input, in host memory
  automatic   ///< the fastest mixture that fits into a budget; for decks
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 6> names_of<Recompute> = {"none",   "pointwise", "layer",
                                                                        "nested", "offload",   "auto"};

}  // namespace kformer
