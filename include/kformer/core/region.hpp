// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <string>

namespace kformer {

/// A named region for Kokkos Tools: pushed now and popped at the end of the scope.
class Region {
 public:
  /// Opens the region `name`.
  explicit Region(const std::string& name) { Kokkos::Profiling::pushRegion(name); }
  ~Region() { Kokkos::Profiling::popRegion(); }
  Region(const Region&) = delete;             ///< a region is a scope
  Region& operator=(const Region&) = delete;  ///< a region is a scope
};

}  // namespace kformer
