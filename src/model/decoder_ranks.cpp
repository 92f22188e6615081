// SPDX-License-Identifier: MIT
#include "kformer/model/impl/decoder_ranks.hpp"

namespace kformer::Impl {

namespace {

// The first projection of each fused weight, and the end.
constexpr std::array projections_of_weights{Projection::q, Projection::o, Projection::gate, Projection::down};
constexpr std::size_t projections = names_of<Projection>.size();

std::size_t end_of(std::size_t weight) {
  return weight + 1 < projections_of_weights.size()
             ? static_cast<std::size_t>(projections_of_weights[weight + 1])
             : projections;
}

}  // namespace

Projection first_projection(FusedWeight weight) {
  return projections_of_weights[static_cast<std::size_t>(weight)];
}

std::int64_t fused_rows(const LlamaConfig& config, FusedWeight weight) {
  std::int64_t rows = 0;
  const auto w = static_cast<std::size_t>(weight);
  for (auto i = static_cast<std::size_t>(projections_of_weights[w]); i < end_of(w); ++i)
    rows += projection_extents(config, static_cast<Projection>(i))[0];
  return rows;
}

DecoderRanks::DecoderRanks(std::vector<LoraConfig> adapters) : m_adapters(std::move(adapters)) {
  std::int64_t rank = 0;
  for (std::size_t w = 0; w < projections_of_weights.size(); ++w) {
    m_first[w] = rank;
    for (auto i = static_cast<std::size_t>(projections_of_weights[w]); i < end_of(w); ++i)
      for (std::size_t k = 0; k < m_adapters.size(); ++k) {
        const auto p = static_cast<Projection>(i);
        const std::int64_t own = m_adapters[k][p].rank;
        if (own == 0) continue;
        auto& runs = m_scales[w];
        const double scale = m_adapters[k].scale(p);
        if (runs.empty() || runs.back().scale != scale) runs.push_back({rank - m_first[w], 0, scale});
        runs.back().count += own;
        m_of.insert(m_of.end(), static_cast<std::size_t>(own), static_cast<std::int32_t>(k));
        rank += own;
      }
  }
  m_first.back() = rank;
  for (std::size_t w = 0; w < projections_of_weights.size(); ++w)
    for (const LoraConfig& adapter : m_adapters) {
      std::int64_t ranks = 0;
      for (auto i = static_cast<std::size_t>(projections_of_weights[w]); i < end_of(w); ++i)
        ranks += adapter.targets[i].rank;
      m_scaled_of.push_back(adapter.magnitudes && ranks > 0 ? static_cast<std::int32_t>(m_scaled[w]++) : -1);
    }
  if (m_scaled == decltype(m_scaled){}) m_scaled_of.clear();
}

LoraConfig DecoderRanks::wide() const {
  LoraConfig all;
  if (m_adapters.size() == 1) {
    all = m_adapters.front();
    all.magnitudes = false;
    return all;
  }
  for (std::size_t i = 0; i < projections; ++i) {
    const std::int64_t rank = before(static_cast<Projection>(i), m_adapters.size());
    all.targets[i] = {rank, static_cast<double>(rank)};
  }
  return all;
}

std::int64_t DecoderRanks::before(Projection p, std::size_t adapter) const {
  std::int64_t rank = 0;
  for (std::size_t k = 0; k < adapter; ++k) rank += m_adapters[k][p].rank;
  return rank;
}

}  // namespace kformer::Impl
