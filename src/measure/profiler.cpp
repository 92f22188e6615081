// SPDX-License-Identifier: MIT
#include "measure/profiler.hpp"

#include <algorithm>

namespace kformer::measure {

namespace {
// The callbacks carry no user data.
Profiler* active = nullptr;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
}  // namespace

struct Profiler::Callbacks {
  static void push(const char* name) { active->push(name); }
  static void pop() { active->pop(); }
  static void begin_for(const char* name, std::uint32_t, std::uint64_t* id) {
    *id = active->begin_kernel(name, "for");
  }
  static void begin_reduce(const char* name, std::uint32_t, std::uint64_t* id) {
    *id = active->begin_kernel(name, "reduce");
  }
  static void begin_scan(const char* name, std::uint32_t, std::uint64_t* id) {
    *id = active->begin_kernel(name, "scan");
  }
  static void end(std::uint64_t) { active->end_kernel(); }
  static void create_section(const char* name, std::uint32_t* id) { *id = active->create_section(name); }
  static void destroy_section(std::uint32_t) {}
  static void start_section(std::uint32_t id) { active->start_section(id); }
  static void stop_section(std::uint32_t id) { active->stop_section(id); }
};

Profiler::Profiler(bool moments)
    : m_previous(Kokkos::Tools::Experimental::get_callbacks()), m_keeps_moments(moments) {
  active = this;
  Kokkos::Tools::Experimental::EventSet ours{};
  Kokkos::Tools::Experimental::set_callbacks(ours);
  using namespace Kokkos::Tools::Experimental;
  set_push_region_callback(Callbacks::push);
  set_pop_region_callback(Callbacks::pop);
  set_begin_parallel_for_callback(Callbacks::begin_for);
  set_begin_parallel_reduce_callback(Callbacks::begin_reduce);
  set_begin_parallel_scan_callback(Callbacks::begin_scan);
  set_end_parallel_for_callback(Callbacks::end);
  set_end_parallel_reduce_callback(Callbacks::end);
  set_end_parallel_scan_callback(Callbacks::end);
  set_create_profile_section_callback(Callbacks::create_section);
  set_destroy_profile_section_callback(Callbacks::destroy_section);
  set_start_profile_section_callback(Callbacks::start_section);
  set_stop_profile_section_callback(Callbacks::stop_section);
}

Profiler::~Profiler() {
  Kokkos::Tools::Experimental::set_callbacks(m_previous);
  active = nullptr;
}

void Profiler::push(const std::string& name) {
  const int parent = m_open_regions.empty() ? -1 : m_open_regions.back().index;
  const std::string path = parent < 0 ? name : m_regions[parent].path + '/' + name;
  const auto [it, added] = m_region_index.try_emplace(path, static_cast<int>(m_regions.size()));
  if (added) m_regions.push_back({path, parent, static_cast<int>(m_open_regions.size())});
  m_open_regions.push_back({it->second, Clock::now()});
}

void Profiler::pop() {
  if (m_open_regions.empty()) return;  // opened before the profiler started
  const Open open = m_open_regions.back();
  m_open_regions.pop_back();
  const double seconds = seconds_since(open.begin);
  RegionTime& region = m_regions[open.index];
  ++region.count;
  region.inclusive += seconds;
  region.exclusive += seconds;
  if (region.parent >= 0) m_regions[region.parent].exclusive -= seconds;
  note("region", region.path.substr(region.path.rfind('/') + 1), open.begin, seconds);
}

std::uint64_t Profiler::begin_kernel(const char* name, const char* kind) {
  const std::string region = m_open_regions.empty() ? "" : m_regions[m_open_regions.back().index].path;
  const auto [it, added] =
      m_kernel_index.try_emplace(region + '\n' + name + '\n' + kind, static_cast<int>(m_kernels.size()));
  if (added) m_kernels.push_back({name, region, kind});
  m_open_kernel = {it->second, Clock::now()};
  return static_cast<std::uint64_t>(it->second);
}

void Profiler::end_kernel() {
  const double seconds = seconds_since(m_open_kernel.begin);
  KernelTime& kernel = m_kernels[m_open_kernel.index];
  kernel.shortest = kernel.count == 0 ? seconds : std::min(kernel.shortest, seconds);
  kernel.longest = std::max(kernel.longest, seconds);
  kernel.total += seconds;
  ++kernel.count;
  note(kernel.kind, kernel.name, m_open_kernel.begin, seconds);
}

std::uint32_t Profiler::create_section(const char* name) {
  m_sections.emplace_back(name, Clock::now());
  return static_cast<std::uint32_t>(m_sections.size() - 1);
}

void Profiler::start_section(std::uint32_t id) {
  if (id < m_sections.size()) m_sections[id].second = Clock::now();
}

// Those that began before this profiler are of another tool.
void Profiler::stop_section(std::uint32_t id) {
  if (id >= m_sections.size()) return;
  const auto& [name, begin] = m_sections[id];
  note("section", name, begin, seconds_since(begin));
}

void Profiler::note(const std::string& kind, const std::string& name, Clock::time_point begin, double seconds) {
  if (!m_keeps_moments) return;
  m_moments.push_back({kind, name, std::chrono::duration<double>(begin - m_start).count(), seconds});
}

}  // namespace kformer::measure
