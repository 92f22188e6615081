// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/schema/tree.hpp"

namespace kformer::Impl::schema {

/// Collects the faults of a deck, to report all of them at once.
class Diagnostics {
 public:
  /// How many faults are listed; of the others there is a number. Finding the line of each takes time.
  static constexpr std::size_t most_listed = 100;

  /// Adds a fault. `hint` follows the caret: what to do, or which names exist.
  void error(const Place& place, std::string message, std::string hint = {});

  /// Adds the faults of `other`.
  void append(Diagnostics other);

  bool empty() const { return m_faults.empty(); }

  /// The first faults that were added, in the order of the text: "deck.toml:14:1: error: ...", the line, and a caret under the
  /// place; then how many others there are.
  std::string report() const;

  /// \throws DeckError with the report, if there is any fault
  void throw_if_any() const;

 private:
  struct Fault {
    Place place;
    std::string message;
    std::string hint;
  };
  void add(Fault fault);

  std::vector<Fault> m_faults;
  std::size_t m_others = 0;
};

/// "deck.toml:14:1", or "deck.toml" for a text as a whole.
std::string to_string(const Place& place);

/// "did you mean 'seq_len'?  known: batch, seq_len" for a word that is not in `names`; if none is similar, the key of
/// another table that has this name: "did you mean 'generate.dtype'?".
std::string naming_hint(std::string_view word, std::vector<std::string> names,
                        const std::vector<std::string>& all_keys = {});

}  // namespace kformer::Impl::schema
