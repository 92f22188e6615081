// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// How keys and values reach the queries of other ranks, where ranks divide the tokens of sequences.
enum class ContextExchange {
  all_gather,  ///< every rank gathers all of them
  ring         ///< they go round while ranks compute, so that a rank has those of two
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<ContextExchange> = {"all_gather", "ring"};

}  // namespace kformer
