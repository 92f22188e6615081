// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "kformer/memory/memory_class.hpp"

/// \file
/// How the bytes of a ledger changed. Free of Kokkos.

namespace kformer {

/// What was booked after one change.
struct MemoryMoment {
  double seconds = 0;                               ///< since the ledger was made
  std::array<std::size_t, memory_classes> bytes{};  ///< by class, in the order of MemoryClass
  std::size_t total = 0;                            ///< of all classes
};

/// The changes in bounded memory. Where there are more changes than places, an entry stands for several that
/// follow one another, equally many each, and shows the one with the largest total: the peak is never lost.
class MemoryTimeline {
 public:
  /// \param places  entries at most, at least 2; an odd number is rounded up
  explicit MemoryTimeline(std::size_t places);
  /// Adds a change. Times ascend.
  void add(const MemoryMoment& moment);
  /// The entries in order of time, and at the end the last change.
  std::vector<MemoryMoment> moments() const;

 private:
  void halve();

  std::size_t m_places, m_changes_per_entry = 1, m_changes_in_last = 0;
  std::vector<MemoryMoment> m_entries;
  MemoryMoment m_last;
};

}  // namespace kformer
