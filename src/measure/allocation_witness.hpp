// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace kformer::measure {

/// Counts Kokkos' allocations through the Kokkos Tools callbacks: an independent check of the ledger that also
/// sees Kokkos' own scratch memory, and not the arrays with which the machine is measured. Never fences, so it may stay on while time is measured. Installed once,
/// after Kokkos::initialize and before the first allocation of interest; a tool the user has loaded keeps its
/// callbacks and the witness then sees nothing (`installed` is false).
class AllocationWitness {
 public:
  /// Bytes of one memory space.
  struct Space {
    std::uint64_t current = 0, peak = 0;      ///< current bytes; peak since `reset_peaks`
    std::int64_t allocations = 0, frees = 0;  ///< events
  };

  /// Installs the callbacks.
  static AllocationWitness& install();

  /// Whether the callbacks are installed.
  bool installed() const { return m_installed; }
  /// By name of the memory space ("Host", "Cuda").
  const std::map<std::string, Space>& spaces() const { return m_spaces; }
  /// Resets the peaks to the current bytes.
  void reset_peaks();

 private:
  AllocationWitness() = default;
  bool m_installed = false;
  std::map<std::string, Space> m_spaces;
  std::map<const void*, std::uint64_t> m_live;  // by pointer: frees of memory never seen allocated are ignored
};

}  // namespace kformer::measure
