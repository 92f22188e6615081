// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>

namespace kformer {

/// The values of a resolved deck by names such as `batch.seq_len` and `reward[0].kind`. Each key begins a line there, and a
/// long list goes on in the next one after a comma.
using DeckKeys = std::map<std::string, std::string>;

/// The keys of a resolved deck.
DeckKeys keys_of(const std::string& resolved);

/// A key whose values differ in two decks; one of them may not have it.
struct DeckDifference {
  std::string key;    ///< its name
  std::string value;  ///< in the first deck, or "not there"
  std::string other;  ///< in the second one
};

/// The first key that differs, by name; nothing if none does.
std::optional<DeckDifference> difference_of(const DeckKeys& first, const DeckKeys& second);

}  // namespace kformer
