// SPDX-License-Identifier: MIT
#include "attention/comparison.hpp"

#include <algorithm>
#include <set>

#include "sweep/noise.hpp"

namespace kformer::drivers {

std::optional<std::int64_t> ComparedConfiguration::crossover() const {
  std::optional<std::int64_t> from;
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    if (!length->second.complete() || length->second.noise) continue;
    if (!(length->second.speedup() > 1)) break;
    from = length->first;
  }
  return from;
}

void Comparison::add(const AttentionResult& result) {
  if (result.samples.seconds.empty()) return;
  AttentionCase configuration = result.point;
  configuration.seq_len = 0;
  configuration.impl = AttentionAlgorithm::standard;
  auto found = std::ranges::find(m_configurations, configuration, &ComparedConfiguration::point);
  if (found == m_configurations.end())
    found = m_configurations.insert(m_configurations.end(), ComparedConfiguration{configuration, {}});
  ComparedLength& length = found->lengths[result.point.seq_len];
  const auto impl = static_cast<std::size_t>(result.point.impl);
  const auto peak = [&](MemoryClass c) { return result.peak[static_cast<std::size_t>(c)]; };
  length.seconds[impl] = result.samples.quantile(0.5);
  length.noise |= noisy(result);
  length.bytes[impl] = static_cast<double>(peak(MemoryClass::activations) + peak(MemoryClass::workspace));
}

bool Comparison::empty() const {
  return std::ranges::none_of(m_configurations, [](const ComparedConfiguration& c) {
    return std::ranges::any_of(c.lengths, [](const auto& length) { return length.second.complete(); });
  });
}

std::vector<std::int64_t> Comparison::lengths() const {
  std::set<std::int64_t> all;
  for (const auto& configuration : m_configurations)
    for (const auto& [seq_len, length] : configuration.lengths) all.insert(seq_len);
  return {all.begin(), all.end()};
}

}  // namespace kformer::drivers
