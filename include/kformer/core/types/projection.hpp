// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// The linear maps of a decoder layer.
enum class Projection { q, k, v, o, gate, up, down };
/// The names of the enumerators in decks, adapters and messages, in order.
template <>
inline constexpr std::array<std::string_view, 7> names_of<Projection> = {
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

}  // namespace kformer
