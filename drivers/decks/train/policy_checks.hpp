// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/load.hpp"
#include "decks/train/train_deck.hpp"

namespace kformer::Impl::schema {

/// Reports contradictions between keys of a training of objective grpo.
void check_policy(const TrainDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Reports a step that does not have whole groups.
/// \param key       table and name of what says how many sequences it has
void check_groups(const PolicyTable& policy, const std::vector<std::string>& key, std::int64_t sequences,
                  const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Reports parts of a step that are not equal.
/// \param key what says how many sequences it has
void check_sample_batch(const PolicyTable& policy, const char* key, std::int64_t sequences,
                        const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Reports what a policy cannot sample with, in a training or a plan of one.
void check_sampler(const PolicyTable& policy, const std::optional<AdapterTable>& adapter,
                   const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
