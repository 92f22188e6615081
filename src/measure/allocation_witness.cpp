// SPDX-License-Identifier: MIT
#include "measure/allocation_witness.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <string_view>

namespace kformer::measure {

AllocationWitness& AllocationWitness::install() {
  // Kokkos frees its own scratch inside finalize, after everything else is gone: the witness is never
  // destroyed.
  static auto* witness = new AllocationWitness;
  namespace Tools = Kokkos::Tools::Experimental;
  if (witness->m_installed || Tools::get_callbacks().allocate_data || Tools::get_callbacks().deallocate_data)
    return *witness;
  Tools::set_allocate_data_callback(
      [](Kokkos::Tools::SpaceHandle handle, const char* label, const void* pointer, std::uint64_t bytes) {
        if (std::string_view(label).starts_with("kformer::measure::")) return;
        Space& space = witness->m_spaces[handle.name];
        space.current += bytes;
        space.peak = std::max(space.peak, space.current);
        ++space.allocations;
        witness->m_live[pointer] = bytes;
      });
  Tools::set_deallocate_data_callback(
      [](Kokkos::Tools::SpaceHandle handle, const char*, const void* pointer, std::uint64_t) {
        const auto live = witness->m_live.find(pointer);
        if (live == witness->m_live.end()) return;
        Space& space = witness->m_spaces[handle.name];
        space.current -= live->second;
        ++space.frees;
        witness->m_live.erase(live);
      });
  witness->m_installed = true;
  return *witness;
}

void AllocationWitness::reset_peaks() {
  for (auto& [name, space] : m_spaces) space.peak = space.current;
}

}  // namespace kformer::measure
