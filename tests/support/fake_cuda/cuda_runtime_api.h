// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

/// \file
/// The calls of the CUDA runtime that src/memory/cuda makes, on a device that is imagined: its pool serves a
/// block from what it kept of a block of the same size, and else reserves memory.

using cudaError_t = int;
using cudaStream_t = int;
enum cudaDeviceAttr { cudaDevAttrMemoryPoolsSupported };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrReservedMemCurrent };
inline constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2;

namespace kformer::Testing {

struct FakeDevice {
  int pools_supported = 1;
  std::uint64_t capacity = 1000, threshold = 0, reserved = 0;
  cudaError_t broken = cudaSuccess;       ///< what the next allocations say, if not that all is well
  cudaError_t last_error = cudaSuccess;   ///< until it is asked for
  int device = -1, synchronizations = 0;  ///< the current one; how often it was waited for
  std::map<char*, std::uint64_t> used;    ///< bytes of blocks
  std::vector<std::pair<std::uint64_t, cudaStream_t>> kept;  ///< bytes, and the stream they were freed on
  std::uint64_t unobserved = 0;  ///< how many of them, the last ones, may still be worked on
  std::vector<cudaStream_t> allocated_on;
};
inline FakeDevice fake_device;

}  // namespace kformer::Testing

using cudaMemPool_t = kformer::Testing::FakeDevice*;

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = kformer::Testing::fake_device.pools_supported;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = &kformer::Testing::fake_device;
  return cudaSuccess;
}
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  *static_cast<std::uint64_t*>(value) =
      attribute == cudaMemPoolAttrReleaseThreshold ? pool->threshold : pool->reserved;
  return cudaSuccess;
}
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute != cudaMemPoolAttrReleaseThreshold) return cudaErrorInvalidValue;
  pool->threshold = *static_cast<std::uint64_t*>(value);
  return cudaSuccess;
}
inline cudaError_t cudaMallocFromPoolAsync(void** data, std::uint64_t bytes, cudaMemPool_t pool,
                                           cudaStream_t stream) {
  if (pool->broken != cudaSuccess) return pool->last_error = pool->broken;
  auto same = pool->kept.begin();
  while (same != pool->kept.end() && same->first != bytes) ++same;
  if (same != pool->kept.end())
    pool->kept.erase(same);
  else if (pool->reserved + bytes > pool->capacity)
    return pool->last_error = cudaErrorMemoryAllocation;
  else
    pool->reserved += bytes;
  *data = new char;
  pool->used[static_cast<char*>(*data)] = bytes;
  pool->allocated_on.push_back(stream);
  return cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  auto& device = kformer::Testing::fake_device;
  const auto block = device.used.find(static_cast<char*>(data));
  if (block == device.used.end()) return device.last_error = cudaErrorInvalidValue;
  device.kept.emplace_back(block->second, stream);
  ++device.unobserved;
  delete block->first;
  device.used.erase(block);
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  kformer::Testing::fake_device.device = device;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
  ++kformer::Testing::fake_device.synchronizations;
  kformer::Testing::fake_device.unobserved = 0;
  return cudaSuccess;
}
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::uint64_t) {
  for (; pool->kept.size() > pool->unobserved; pool->kept.erase(pool->kept.begin()))
    pool->reserved -= pool->kept.front().first;
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() {
  return std::exchange(kformer::Testing::fake_device.last_error, cudaSuccess);
}
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidValue ? "invalid argument" : "other";
}
