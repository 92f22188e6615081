// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>
#include <vector>

/// \file
/// Byte-pair encoding (Sennrich et al., arXiv:1508.07909): neighbours are merged, the best pair first.

namespace kformer::Impl::tokenizers {

/// A piece of text that is one token so far.
struct Symbol {
  std::int32_t id;        ///< −1: no token
  std::string_view text;  ///< empty: was joined to the symbol before
  std::int32_t before;    ///< index of the neighbour, −1: none
  std::int32_t after;     ///< index of the neighbour, −1: none
};

/// Symbols in a row.
class Symbols {
 public:
  void add(std::int32_t id, std::string_view text) {
    const auto index = static_cast<std::int32_t>(m_symbols.size());
    if (index > 0) m_symbols.back().after = index;
    m_symbols.push_back({id, text, index - 1, -1});
  }
  void clear() { m_symbols.clear(); }
  bool empty() const { return m_symbols.empty(); }
  Symbol& last() { return m_symbols.back(); }

  /// Joins neighbours as long as `find` finds a pair.
  /// \param find (left, right) -> std::optional<Joined>
  template <class Find>
  void merge(Find find);

  /// `f(symbol)` for each that is left, in order.
  template <class F>
  void for_each(F f) const {
    for (std::int32_t i = m_symbols.empty() ? -1 : 0; i >= 0; i = m_symbols[i].after) f(m_symbols[i]);
  }

 private:
  std::vector<Symbol> m_symbols;
};

/// The merge of two neighbours.
struct Joined {
  double rank;      ///< the smallest goes first; of equal ones the leftmost
  std::int32_t id;  ///< of the token
};

template <class Find>
void Symbols::merge(Find find) {
  struct Candidate {
    Joined joined;
    std::int32_t left;
    std::size_t size;  // of both; if it differs, one of them was merged meanwhile
    bool operator<(const Candidate& other) const {
      return joined.rank != other.joined.rank ? joined.rank > other.joined.rank : left > other.left;
    }
  };
  std::vector<Candidate> found;
  const auto candidate = [&](std::int32_t left) -> std::optional<Candidate> {
    const Symbol& first = m_symbols[left];
    if (first.after < 0) return {};
    const Symbol& second = m_symbols[first.after];
    const std::optional<Joined> joined = find(first, second);
    if (!joined) return {};
    return Candidate{*joined, left, first.text.size() + second.text.size()};
  };
  for (std::size_t i = 0; i < m_symbols.size(); ++i)
    if (const auto next = candidate(static_cast<std::int32_t>(i))) found.push_back(*next);
  std::priority_queue<Candidate> queue({}, std::move(found));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = m_symbols[best.left];
    if (left.text.empty() || left.after < 0) continue;
    Symbol& right = m_symbols[left.after];
    if (left.text.size() + right.text.size() != best.size) continue;
    left = {best.joined.id, std::string_view(left.text.data(), best.size), left.before, right.after};
    right.text = {};
    if (left.after >= 0) m_symbols[left.after].before = best.left;
    if (left.before >= 0)
      if (const auto next = candidate(left.before)) queue.push(*next);
    if (const auto next = candidate(best.left)) queue.push(*next);
  }
}

}  // namespace kformer::Impl::tokenizers
