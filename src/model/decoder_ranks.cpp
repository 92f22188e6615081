// SPDX-License-Identifier: MIT
#include "kformer/model/impl/decoder_ranks.hpp"

namespace kformer::Impl {

namespace {

// The first projection of each fused weight, and the end.
constexpr std::array first_projection{Projection::q, Projection::o, Projection::gate, Projection::down};
constexpr std::size_t projections = names_of<Projection>.size();

}  // namespace

DecoderRanks::DecoderRanks(std::vector<LoraConfig> adapters) : m_adapters(std::move(adapters)) {
  std::int64_t rank = 0;
  for (std::size_t w = 0; w < first_projection.size(); ++w) {
    const std::size_t end =
        w + 1 < first_projection.size() ? static_cast<std::size_t>(first_projection[w + 1]) : projections;
    m_first[w] = rank;
    for (auto i = static_cast<std::size_t>(first_projection[w]); i < end; ++i)
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
}

LoraConfig DecoderRanks::wide() const {
  if (m_adapters.size() == 1) return m_adapters.front();
  LoraConfig all;
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
