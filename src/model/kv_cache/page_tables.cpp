// SPDX-License-Identifier: MIT
#include "model/kv_cache/page_tables.hpp"

#include <algorithm>

namespace kformer::Impl {

PageTables::PageTables(std::int64_t sequences, std::int64_t pages, std::int64_t most_of_sequence)
    : m_most(most_of_sequence),
      m_free(pages),
      m_owners(static_cast<std::size_t>(pages), 0),
      m_tables(static_cast<std::size_t>(sequences)),
      m_consecutive(static_cast<std::size_t>(sequences), true) {
  for (auto& table : m_tables) table.reserve(static_cast<std::size_t>(most_of_sequence));
}

void PageTables::grow(std::int64_t sequence, std::int64_t count) {
  auto& table = m_tables[sequence];
  while (static_cast<std::int64_t>(table.size()) < count) {
    // After the last one, so that a sequence can be read in one piece.
    const std::int64_t wanted = table.empty() ? place_for_sequence() : table.back() + 1;
    table.push_back(static_cast<std::int32_t>(take(wanted)));
  }
  note_order(sequence);
}

void PageTables::shrink(std::int64_t sequence, std::int64_t count) {
  auto& table = m_tables[sequence];
  while (static_cast<std::int64_t>(table.size()) > count) {
    if (--m_owners[table.back()] == 0) ++m_free;
    table.pop_back();
  }
  note_order(sequence);
}

std::int64_t PageTables::replace(std::int64_t sequence, std::int64_t n) {
  auto& table = m_tables[sequence];
  --m_owners[table[n]];
  table[n] = static_cast<std::int32_t>(take(n > 0 ? table[n - 1] + 1 : place_for_sequence()));
  note_order(sequence);
  return table[n];
}

void PageTables::share(std::int64_t from, std::int64_t to) {
  shrink(to, 0);
  for (const std::int32_t page : m_tables[from]) {
    ++m_owners[page];
    m_tables[to].push_back(page);
  }
  note_order(to);
}

// The page `wanted` if it is free, else the first free one.
std::int64_t PageTables::take(std::int64_t wanted) {
  const auto pages = static_cast<std::int64_t>(m_owners.size());
  if (wanted < 0 || wanted >= pages || m_owners[wanted] != 0)
    wanted = std::find(m_owners.begin(), m_owners.end(), 0) - m_owners.begin();
  m_owners[wanted] = 1;
  --m_free;
  return wanted;
}

// A page that is followed by room for a whole sequence, or −1.
std::int64_t PageTables::place_for_sequence() const {
  const auto pages = static_cast<std::int64_t>(m_owners.size());
  for (std::int64_t first = 0; first + m_most <= pages; first += m_most)
    if (std::all_of(m_owners.begin() + first, m_owners.begin() + first + m_most,
                    [](std::int32_t owners) { return owners == 0; }))
      return first;
  return -1;
}

void PageTables::note_order(std::int64_t sequence) {
  const auto& table = m_tables[sequence];
  m_consecutive[sequence] =
      std::adjacent_find(table.begin(), table.end(), [](auto a, auto b) { return b != a + 1; }) == table.end();
}

}  // namespace kformer::Impl
