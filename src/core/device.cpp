// SPDX-License-Identifier: MIT
#include "kformer/core/device.hpp"

#include <Kokkos_Core.hpp>

namespace kformer {

namespace {

// The number of devices, or why it is not known.
[[maybe_unused]] std::string absence(const char* backend, bool known, int count, const char* error) {
  if (known && count > 0) return {};
  return std::string("Kokkos was built for ") + backend + ", but this machine has no such device (" +
         (known ? "the runtime reports 0" : error) + "); run on a machine with one, or build for the host";
}

}  // namespace

std::string missing_device() {
#if defined(KOKKOS_ENABLE_CUDA)
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  return absence("CUDA", error == cudaSuccess, count, cudaGetErrorString(error));
#elif defined(KOKKOS_ENABLE_HIP)
  int count = 0;
  const hipError_t error = hipGetDeviceCount(&count);
  return absence("HIP", error == hipSuccess, count, hipGetErrorString(error));
#else
  return {};
#endif
}

}  // namespace kformer
