// SPDX-License-Identifier: MIT
#include "decks/adapter_table.hpp"

#include <algorithm>

namespace kformer {

LoraConfig lora_config(const AdapterTable& table, const LoraConfig* stored) {
  const AdapterRanksTable& r = table.ranks;
  const std::array ranks{r.q, r.k, r.v, r.o, r.gate, r.up, r.down};
  LoraConfig config =
      stored ? *stored : LoraConfig{.rank_stabilized = table.rank_stabilized, .magnitudes = table.dora};
  config.learning_rate_ratio = table.learning_rate_ratio;
  if (table.dropout) config.dropout = *table.dropout;
  if (stored) return config;
  for (std::size_t i = 0; i < config.targets.size(); ++i) {
    const bool wanted = std::ranges::any_of(table.targets, [&](AdapterTarget target) {
      return target == AdapterTarget::all || target == static_cast<AdapterTarget>(i);
    });
    if (wanted) config.targets[i] = {ranks[i].value_or(table.rank), table.alpha};
  }
  return config;
}

}  // namespace kformer
