// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kformer/core/types/names.hpp"

/// \file
/// Options of the rotary position embedding. Free of Kokkos.

namespace kformer {

/// Which two components of a head are rotated together.
enum class RopeLayout {
  half_split,   ///< `i` and `i + head_dim/2`: the checkpoints of Hugging Face
  interleaved,  ///< `2i` and `2i + 1`: the paper, and the checkpoints of Meta
};
/// The names of the enumerators in messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<RopeLayout> = {"half_split", "interleaved"};

/// How the RoPE frequencies are scaled.
enum class RopeType { none, llama3 };
/// The names of the enumerators in decks, results and config.json files, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<RopeType> = {"none", "llama3"};

/// Frequency scaling, with the keys of published config.json files; the defaults are those of Llama 3.1. With
/// `llama3`, wavelengths shorter than `original_max_position_embeddings / high_freq_factor` stay, those longer
/// than `original_max_position_embeddings / low_freq_factor` grow by `factor`, and those between are blended.
struct RopeScaling {
  RopeType rope_type = RopeType::none;  ///< none: the other members are not read
  double factor = 8;                    ///< low frequencies are divided by this
  double low_freq_factor = 1;           ///< wavelengths above original / this are scaled in full
  double high_freq_factor = 4;          ///< wavelengths below original / this are kept
  std::int64_t original_max_position_embeddings = 8192;  ///< context length of the first training, in tokens

  /// Whether all members are equal.
  bool operator==(const RopeScaling&) const = default;
};

/// The rotary embedding of a model: `theta` and `scaling` belong to `rope_tables`, `layout` to `rope_forward`
/// and `rope_backward`, because the tables are the same for both layouts.
struct RopeOptions {
  double theta = 10000;                        ///< base of the frequencies; `rope_theta`
  RopeLayout layout = RopeLayout::half_split;  ///< which components form a pair
  RopeScaling scaling{};                       ///< frequency scaling

  /// Whether all members are equal.
  bool operator==(const RopeOptions&) const = default;
};

}  // namespace kformer
