// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// \file
/// Options of the rotary position embedding. Free of Kokkos.

namespace kformer {

/// Which two components of a head are rotated together.
enum class RopeLayout {
  half_split,   ///< `i` and `i + head_dim/2`: the checkpoints of Hugging Face
  interleaved,  ///< `2i` and `2i + 1`: the paper, and the checkpoints of Meta
};

/// Frequency scaling of Llama 3.1 (`rope_type: llama3` of published configurations). Wavelengths shorter than
/// `original_max_position / high_freq_factor` stay, those longer than `original_max_position / low_freq_factor`
/// grow by `factor`, and those between are blended.
struct RopeScaling {
  double factor = 1;                          ///< 1: no scaling; the other members are not read
  double low_freq_factor = 1;                 ///< `low_freq_factor`
  double high_freq_factor = 4;                ///< `high_freq_factor`
  std::int64_t original_max_position = 8192;  ///< `original_max_position_embeddings`

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
