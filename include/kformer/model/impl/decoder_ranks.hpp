// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kformer/core/enum_names.hpp"
#include "kformer/model/lora_config.hpp"

/// \file
/// The ranks of several adapters that lie side by side as one.

namespace kformer::Impl {

/// A fused weight of a decoder layer.
enum class FusedWeight { qkv, out, gate_up, down };

/// All of them.
inline constexpr std::array fused_weights{FusedWeight::qkv, FusedWeight::out, FusedWeight::gate_up,
                                          FusedWeight::down};

/// The first of its projections; the others follow.
Projection first_projection(FusedWeight weight);

/// Its rows, those of all its projections.
std::int64_t fused_rows(const LlamaConfig& config, FusedWeight weight);

/// Ranks that are neighbours and have one scale.
struct RankRun {
  std::int64_t first, count;
  double scale;
};

/// What stands in the rows of A, and in the columns of xa, of the fused weights: projection by projection, and in each
/// adapter by adapter.
class DecoderRanks {
 public:
  DecoderRanks() = default;
  explicit DecoderRanks(std::vector<LoraConfig> adapters);

  /// The adapters as one without magnitudes, which has the scale of the only one, or 1.
  LoraConfig wide() const;
  /// Ranks of the adapters of a projection before this one.
  std::int64_t before(Projection p, std::size_t adapter) const;
  /// The first rank of a fused weight among those of all.
  std::int64_t first(FusedWeight weight) const { return m_first[static_cast<std::size_t>(weight)]; }
  /// Ranks of a fused weight.
  std::int64_t count(FusedWeight weight) const {
    return m_first[static_cast<std::size_t>(weight) + 1] - first(weight);
  }
  /// The scales of a fused weight's ranks, in their order.
  const std::vector<RankRun>& scales(FusedWeight weight) const {
    return m_scales[static_cast<std::size_t>(weight)];
  }
  /// The number of the adapter of each rank.
  const std::vector<std::int32_t>& of() const { return m_of; }
  /// How many adapters have magnitudes for rows of a fused weight.
  std::int64_t scaled(FusedWeight weight) const { return m_scaled[static_cast<std::size_t>(weight)]; }
  /// Which of these an adapter is, for each adapter of each fused weight, or −1; empty if there are none at all.
  const std::vector<std::int32_t>& scaled_of() const { return m_scaled_of; }
  /// The same of one.
  std::int32_t scaled_of(FusedWeight weight, std::size_t adapter) const {
    return m_scaled_of[static_cast<std::size_t>(weight) * m_adapters.size() + adapter];
  }
  /// How many adapters.
  std::size_t adapters() const { return m_adapters.size(); }

 private:
  std::vector<LoraConfig> m_adapters;
  std::array<std::int64_t, 5> m_first{};
  std::array<std::vector<RankRun>, 4> m_scales;
  std::vector<std::int32_t> m_of;
  std::array<std::int64_t, 4> m_scaled{};
  std::vector<std::int32_t> m_scaled_of;
};

}  // namespace kformer::Impl
