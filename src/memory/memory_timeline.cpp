// SPDX-License-Identifier: MIT
#include "kformer/memory/memory_timeline.hpp"

#include <algorithm>

namespace kformer {

MemoryTimeline::MemoryTimeline(std::size_t places) : m_places(std::max<std::size_t>(2, places + places % 2)) {
  m_entries.reserve(m_places);  // so that a change needs no memory
}

void MemoryTimeline::add(const MemoryMoment& moment) {
  m_last = moment;
  if (m_changes_in_last == m_changes_per_entry) m_changes_in_last = 0;
  if (m_changes_in_last == 0) {
    if (m_entries.size() == m_places) halve();
    m_entries.push_back(moment);
  } else if (moment.total >= m_entries.back().total) {
    m_entries.back() = moment;
  }
  ++m_changes_in_last;
}

// Every entry is complete, and there is an even number of them.
void MemoryTimeline::halve() {
  for (std::size_t i = 0; i < m_places / 2; ++i) {
    const MemoryMoment &first = m_entries[2 * i], &second = m_entries[2 * i + 1];
    m_entries[i] = second.total >= first.total ? second : first;
  }
  m_entries.resize(m_places / 2);
  m_changes_per_entry *= 2;
}

std::vector<MemoryMoment> MemoryTimeline::moments() const {
  std::vector<MemoryMoment> moments = m_entries;
  if (!moments.empty() && moments.back().seconds < m_last.seconds) moments.push_back(m_last);
  return moments;
}

}  // namespace kformer
