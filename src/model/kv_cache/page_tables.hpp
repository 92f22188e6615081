// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

/// \file
/// Which sequence has which pages. Free of arrays: bookkeeping on the host.

namespace kformer::Impl {

/// The pages of a pool, how many sequences have each, and the pages of each sequence in order.
class PageTables {
 public:
  PageTables(std::int64_t sequences, std::int64_t pages, std::int64_t most_of_sequence);

  /// Most pages of a sequence.
  std::int64_t most_of_sequence() const { return m_most; }
  std::int64_t free() const { return m_free; }
  std::int64_t used() const { return static_cast<std::int64_t>(m_owners.size()) - m_free; }
  std::int64_t count(std::int64_t sequence) const {
    return static_cast<std::int64_t>(m_tables[sequence].size());
  }
  std::int64_t at(std::int64_t sequence, std::int64_t n) const { return m_tables[sequence][n]; }
  bool shared(std::int64_t sequence, std::int64_t n) const { return m_owners[at(sequence, n)] > 1; }
  /// Whether the pages of a sequence lie one after the other.
  bool consecutive(std::int64_t sequence) const { return m_consecutive[sequence]; }

  /// Pages to copy when each sequence `s` writes to its page number `written(s)`, none if that is negative: of
  /// the owners of a page the last one may keep it.
  template <class F>
  std::int64_t copies_needed(F written) const {
    std::int64_t copies = 0;
    const auto sequences = static_cast<std::int64_t>(m_tables.size());
    for (std::int64_t s = 0; s < sequences; ++s) {
      const std::int64_t n = written(s);
      if (n < 0 || !shared(s, n)) continue;
      std::int64_t owners = m_owners[at(s, n)];
      for (std::int64_t r = 0; r < s; ++r)
        if (const std::int64_t m = written(r); m >= 0 && at(r, m) == at(s, n)) --owners;
      if (owners > 1) ++copies;
    }
    return copies;
  }

  /// Gives a sequence free pages until it has `count`.
  void grow(std::int64_t sequence, std::int64_t count);
  /// Gives back pages of a sequence until it has `count`.
  void shrink(std::int64_t sequence, std::int64_t count);
  /// Gives a sequence a page of its own in place of number `n`, and returns it.
  std::int64_t replace(std::int64_t sequence, std::int64_t n);
  /// `to` gives back its pages and shares those of `from`.
  void share(std::int64_t from, std::int64_t to);

 private:
  std::int64_t take(std::int64_t wanted);
  std::int64_t place_for_sequence() const;
  void note_order(std::int64_t sequence);

  std::int64_t m_most, m_free;
  std::vector<std::int32_t> m_owners;  // sequences that have a page; 0: free
  std::vector<std::vector<std::int32_t>> m_tables;
  std::vector<bool> m_consecutive;
};

}  // namespace kformer::Impl
