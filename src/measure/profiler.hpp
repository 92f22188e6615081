// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace kformer::measure {

/// Times every kernel and region of a stretch of the program through the Kokkos Tools callbacks. Kokkos fences
/// around every kernel while this is active, so its times belong in a separate pass, never among timing
/// samples. A tool that the user has loaded is suspended meanwhile and restored afterwards.
class Profiler {
 public:
  /// All launches of one kernel inside one region.
  struct KernelTime {
    std::string name, region;                     ///< label; path of the region it ran in
    std::string kind;                             ///< for, reduce, scan or copy
    std::int64_t count = 0;                       ///< launches
    double total = 0, shortest = 0, longest = 0;  ///< seconds
  };
  /// All visits to one region.
  struct RegionTime {
    std::string path;        ///< names from the outermost, joined by '/'
    int parent = -1;         ///< index of the region around it, −1 for none
    int depth = 0;           ///< 0 for the outermost
    std::int64_t count = 0;  ///< visits
    double inclusive = 0;    ///< seconds, including children
    double exclusive = 0;    ///< seconds, excluding children
  };

  /// A visit of a region, a launch of a kernel, or a section, which may begin and end anywhere.
  struct Moment {
    std::string kind;               ///< region, for, reduce, scan or section
    std::string name;               ///< label
    double begin = 0, seconds = 0;  ///< since the profiler started
  };

  /// Starts. One profiler at a time.
  /// \param moments whether each visit and launch is kept, too
  explicit Profiler(bool moments = false);
  ~Profiler();
  Profiler(const Profiler&) = delete;             ///< the callbacks point here
  Profiler& operator=(const Profiler&) = delete;  ///< the callbacks point here

  /// In order of first appearance.
  const std::vector<RegionTime>& regions() const { return m_regions; }
  /// In order of first appearance.
  const std::vector<KernelTime>& kernels() const { return m_kernels; }
  /// In the order of their ends; empty unless they were asked for.
  const std::vector<Moment>& moments() const { return m_moments; }

 private:
  struct Callbacks;
  using Clock = std::chrono::steady_clock;
  struct Open {
    int index;
    Clock::time_point begin;
  };

  void push(const std::string& name);
  void pop();
  std::uint64_t begin_kernel(const char* name, const char* kind);
  void end_kernel();
  std::uint32_t create_section(const char* name);
  void start_section(std::uint32_t id);
  void stop_section(std::uint32_t id);
  void note(const std::string& kind, const std::string& name, Clock::time_point begin, double seconds);

  Kokkos::Tools::Experimental::EventSet m_previous;
  std::vector<RegionTime> m_regions;
  std::vector<KernelTime> m_kernels;
  std::map<std::string, int> m_region_index, m_kernel_index;
  std::vector<Open> m_open_regions;
  Open m_open_kernel{};
  std::vector<std::pair<std::string, Clock::time_point>> m_sections;  // by id: name, last start
  std::vector<Moment> m_moments;
  Clock::time_point m_start = Clock::now();
  bool m_keeps_moments;
};

}  // namespace kformer::measure
