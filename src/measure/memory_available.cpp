// SPDX-License-Identifier: MIT
#include "measure/memory_available.hpp"

#include <sys/resource.h>
#include <unistd.h>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <fstream>

#include "kformer/memory/pool.hpp"
#include "measure/nvml.hpp"

namespace kformer::measure {

namespace {

namespace fs = std::filesystem;

using Bytes = std::optional<std::size_t>;

// What a limit leaves.
Bytes rest_of(std::size_t limit, std::size_t used) { return limit > used ? limit - used : 0; }

// The number that follows the word in a file of pairs.
std::size_t number_after(const fs::path& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string word;
  for (std::size_t number = 0; file >> word >> number;)
    if (word == wanted) return number;
  return 0;
}

// Nothing for `max`, which is no limit.
Bytes number_in(const fs::path& path) {
  std::size_t number = 0;
  return std::ifstream(path) >> number ? Bytes(number) : std::nullopt;
}

// A line of /proc/meminfo is "MemAvailable:    1024 kB".
Bytes system_leaves(const fs::path& root) {
  std::ifstream info(root / "proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  return {};
}

Bytes address_space_leaves(const fs::path& root) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const Bytes pages = number_in(root / "proc/self/statm");
  if (!pages) return {};
  return rest_of(limit.rlim_cur, *pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
}

// Files that the kernel keeps in memory count as used, but it takes them back when memory is needed.
Bytes group_leaves(const fs::path& group, const char* limit, const char* used, const std::string& prefix) {
  const Bytes most = number_in(group / limit), now = number_in(group / used);
  if (!most || !now) return {};
  std::size_t files = 0;
  for (const char* list : {"active_file", "inactive_file"})
    files += number_after(group / "memory.stat", prefix + list);
  return rest_of(*most, *now - std::min(*now, files));
}

// A group has the limits of those around it, too. In a container the path may be one of the host; the folders that
// exist are then those of the container.
Bytes groups_leave(const fs::path& root) {
  Bytes least;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // 0::/path of version 2, 4:memory:/path of version 1
    const auto controllers = line.find(':'), path = line.find(':', controllers + 1);
    if (controllers == line.npos || path == line.npos) continue;
    const std::string which = "," + line.substr(controllers + 1, path - controllers - 1) + ",";
    const bool version_2 = which == ",,";
    if (!version_2 && which.find(",memory,") == which.npos) continue;
    const fs::path top = root / (version_2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    for (fs::path group = line.substr(path + 1);; group = group.parent_path()) {
      const fs::path at = top / group.relative_path();
      const Bytes rest = version_2
                             ? group_leaves(at, "memory.max", "memory.current", "")
                             : group_leaves(at, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_");
      if (rest) least = std::min(least.value_or(*rest), *rest);
      if (!group.has_relative_path()) break;
    }
  }
  return least;
}

}  // namespace

std::optional<std::size_t> host_memory_available(const fs::path& root) {
  Bytes least = system_leaves(root);
  for (const Bytes& rest : {address_space_leaves(root), groups_leave(root)})
    if (rest) least = std::min(least.value_or(*rest), *rest);
  return least;
}

std::optional<std::size_t> memory_available(const std::string& space) {
#ifdef KOKKOS_ENABLE_CUDA
  if (space == "cuda") {
    Pool<Kokkos::CudaSpace>::trim();
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) return free;
    return {};
  }
#endif
  if (space == "hip" || space == "sycl") return {};
  return host_memory_available();
}

std::int64_t device_address([[maybe_unused]] const std::string& space) {
#ifdef KOKKOS_ENABLE_CUDA
  if (space == "cuda") {
    std::int64_t address = 0;
    // Buses and devices have at most 256 numbers.
    for (const auto part : {cudaDevAttrPciDomainId, cudaDevAttrPciBusId, cudaDevAttrPciDeviceId}) {
      int number = 0;
      if (cudaDeviceGetAttribute(&number, part, Kokkos::device_id()) != cudaSuccess) return -1;
      address = address * 256 + number;
    }
    return address;
  }
#endif
  return -1;
}

std::optional<DeviceMemory> device_memory() {
#ifdef KOKKOS_ENABLE_CUDA
  static const Nvml nvml;
  char address[32] = {};
  if (cudaDeviceGetPCIBusId(address, sizeof address, Kokkos::device_id()) == cudaSuccess)
    if (const auto used = nvml.used_bytes(address))
      return DeviceMemory{*used, Pool<Kokkos::CudaSpace>::reserved_bytes().value_or(0)};
#endif
  return {};
}

}  // namespace kformer::measure
