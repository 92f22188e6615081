// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// Storage types by name, as decks and files spell them; `i32` is for token ids and positions, `u8` for codes.
enum class DType { f32, bf16, f16, f64, i32, u8 };
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 6> names_of<DType> = {"f32", "bf16", "f16", "f64", "i32", "u8"};

}  // namespace kformer
