// SPDX-License-Identifier: MIT
#include "common/memory_available.hpp"

#include <Kokkos_Core.hpp>

#include <fstream>

namespace kformer::drivers {

namespace {

std::optional<std::size_t> host_memory_available() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  return {};
}

}  // namespace

std::optional<std::size_t> memory_available(const std::string& space) {
#ifdef KOKKOS_ENABLE_CUDA
  if (space == "cuda") {
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) return free;
    return {};
  }
#endif
  if (space == "hip" || space == "sycl") return {};
  return host_memory_available();
}

}  // namespace kformer::drivers
