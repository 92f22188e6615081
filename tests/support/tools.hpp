// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// \file
/// What Kokkos Tools callbacks see of a stretch of the program.

namespace kformer::Testing {

/// Records kernels, fences, allocations and deep copies as long as it lives; one at a time. Callbacks that were
/// set before are put back afterwards.
class ToolsRecorder {
 public:
  /// A kernel launch.
  struct Kernel {
    std::string label;
    std::uint32_t device;  ///< device and instance, as Kokkos::Tools::Experimental::device_id numbers them
  };
  /// An allocation, or the end of one.
  struct Allocation {
    std::string space, label;
    std::uint64_t bytes;
    bool operator==(const Allocation&) const = default;
  };

  ToolsRecorder() : m_previous(Kokkos::Tools::Experimental::get_callbacks()) {
    namespace Tools = Kokkos::Tools::Experimental;
    active = this;
    Tools::set_callbacks(Tools::EventSet{});
    Tools::set_begin_parallel_for_callback(begin_kernel);
    Tools::set_begin_parallel_reduce_callback(begin_kernel);
    Tools::set_begin_parallel_scan_callback(begin_kernel);
    Tools::set_begin_fence_callback([](const char* name, std::uint32_t, std::uint64_t*) {
      // Kokkos fences around every kernel because a tool listens.
      if (std::string(name).find("Kokkos Profile Tool Fence") == std::string::npos)
        active->m_fences.push_back(name);
    });
    Tools::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle space, const char* label, const void* pointer, std::uint64_t bytes) {
          active->allocate(space.name, label, pointer, bytes);
        });
    Tools::set_deallocate_data_callback(
        [](Kokkos::Tools::SpaceHandle space, const char* label, const void* pointer, std::uint64_t bytes) {
          active->deallocate(space.name, label, pointer, bytes);
        });
    Tools::set_begin_deep_copy_callback(
        [](Kokkos::Tools::SpaceHandle, const char* to, const void*, Kokkos::Tools::SpaceHandle,
           const char* from, const void*,
           std::uint64_t) { active->m_deep_copies.push_back(std::string(from) + " -> " + to); });
  }
  ~ToolsRecorder() {
    Kokkos::Tools::Experimental::set_callbacks(m_previous);
    active = nullptr;
  }
  ToolsRecorder(const ToolsRecorder&) = delete;
  ToolsRecorder& operator=(const ToolsRecorder&) = delete;

  const std::vector<Kernel>& kernels() const { return m_kernels; }
  /// Names, without those that Kokkos adds for the tool's sake.
  const std::vector<std::string>& fences() const { return m_fences; }
  const std::vector<Allocation>& allocations() const { return m_allocations; }
  /// The ends of allocations that began since the recorder was made.
  const std::vector<Allocation>& deallocations() const { return m_deallocations; }
  const std::vector<std::string>& deep_copies() const { return m_deep_copies; }
  /// Bytes allocated since the recorder was made and not freed.
  std::uint64_t current_bytes() const { return m_current; }
  /// The most of them at once.
  std::uint64_t peak_bytes() const { return m_peak; }

 private:
  static void begin_kernel(const char* label, std::uint32_t device, std::uint64_t*) {
    active->m_kernels.push_back({label, device});
  }
  void allocate(const char* space, const char* label, const void* pointer, std::uint64_t bytes) {
    m_allocations.push_back({space, label, bytes});
    m_live[pointer] = bytes;
    m_current += bytes;
    m_peak = std::max(m_peak, m_current);
  }
  void deallocate(const char* space, const char* label, const void* pointer, std::uint64_t bytes) {
    const auto live = m_live.find(pointer);
    if (live == m_live.end()) return;  // allocated before the recorder was made
    m_deallocations.push_back({space, label, bytes});
    m_current -= live->second;
    m_live.erase(live);
  }

  static inline ToolsRecorder* active = nullptr;  // the callbacks carry no user data
  Kokkos::Tools::Experimental::EventSet m_previous;
  std::vector<Kernel> m_kernels;
  std::vector<std::string> m_fences, m_deep_copies;
  std::vector<Allocation> m_allocations, m_deallocations;
  std::map<const void*, std::uint64_t> m_live;
  std::uint64_t m_current = 0, m_peak = 0;
};

}  // namespace kformer::Testing
