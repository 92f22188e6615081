// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "kformer/core/types/projection.hpp"

/// \file
/// Which linear maps of a model have low-rank adapters. Free of Kokkos.

namespace kformer {

/// The adapter of one projection, in every layer.
struct LoraTarget {
  std::int64_t rank = 0;  ///< 0: none
  double alpha = 0;       ///< α
  /// Whether both are equal.
  bool operator==(const LoraTarget&) const = default;
};

/// The adapters of a model (LoRA: Hu et al., arXiv:2106.09685). Where there is one, it alone learns.
struct LoraConfig {
  std::array<LoraTarget, names_of<Projection>.size()> targets{};  ///< by projection
  bool rank_stabilized = false;    ///< rsLoRA (Kalajdzievski, arXiv:2312.03732): α/√rank in place of α/rank
  double learning_rate_ratio = 1;  ///< of B over A, LoRA+ (Hayou et al., arXiv:2402.12354)

  /// The adapter of a projection.
  const LoraTarget& operator[](Projection p) const { return targets[static_cast<std::size_t>(p)]; }
  /// The same, to write.
  LoraTarget& operator[](Projection p) { return targets[static_cast<std::size_t>(p)]; }

  /// Whether any projection has one.
  bool any() const {
    return std::any_of(targets.begin(), targets.end(), [](const LoraTarget& t) { return t.rank > 0; });
  }
  /// The factor s of a projection's adapter.
  double scale(Projection p) const {
    const auto rank = static_cast<double>(std::max<std::int64_t>(1, (*this)[p].rank));
    return (*this)[p].alpha / (rank_stabilized ? std::sqrt(rank) : rank);
  }
  /// The same adapter for all projections.
  static LoraConfig all(std::int64_t rank, double alpha) {
    LoraConfig config;
    config.targets.fill({rank, alpha});
    return config;
  }
  /// Whether all is equal.
  bool operator==(const LoraConfig&) const = default;
};

}  // namespace kformer
