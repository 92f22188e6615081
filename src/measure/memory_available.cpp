// SPDX-License-Identifier: MIT
#include "measure/memory_available.hpp"

#include <Kokkos_Core.hpp>

#include <fstream>

#include "kformer/memory/pool.hpp"
#include "measure/nvml.hpp"

namespace kformer::measure {

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
    Pool<Kokkos::CudaSpace>::trim();
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) return free;
    return {};
  }
#endif
  if (space == "hip" || space == "sycl") return {};
  return host_memory_available();
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
