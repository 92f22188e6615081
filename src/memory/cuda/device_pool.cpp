// SPDX-License-Identifier: MIT
#include "memory/cuda/device_pool.hpp"

#include <limits>
#include <string>

#include "kformer/core/error.hpp"

namespace kformer::Impl::cuda {

namespace {

void require(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    throw Error(std::string("kformer::Pool: ") + call + ": CUDA says: " + cudaGetErrorString(error));
}

}  // namespace

DevicePool::DevicePool(int device) : m_device(device) {
  int supported = 0;
  require(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device),
          "cudaDeviceGetAttribute");
  if (supported == 0) return;
  require(cudaDeviceGetDefaultMemPool(&m_pool, device), "cudaDeviceGetDefaultMemPool");
  std::uint64_t threshold = 0;
  require(cudaMemPoolGetAttribute(m_pool, cudaMemPoolAttrReleaseThreshold, &threshold),
          "cudaMemPoolGetAttribute");
  if (threshold > 0) return;
  threshold = std::numeric_limits<std::uint64_t>::max();
  require(cudaMemPoolSetAttribute(m_pool, cudaMemPoolAttrReleaseThreshold, &threshold),
          "cudaMemPoolSetAttribute");
}

void* DevicePool::allocate(std::size_t bytes, cudaStream_t stream) const {
  void* data = nullptr;
  cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, m_pool, stream);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // otherwise the check of the next launch finds it
    trim();
    error = cudaMallocFromPoolAsync(&data, bytes, m_pool, stream);
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  require(error, "cudaMallocFromPoolAsync");
  return data;
}

void DevicePool::free(void* data, cudaStream_t stream) const {
  require(cudaFreeAsync(data, stream), "cudaFreeAsync");
}

void DevicePool::wait() const {
  require(cudaSetDevice(m_device), "cudaSetDevice");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void DevicePool::trim() const {
  wait();  // memory whose work may be unfinished stays
  require(cudaMemPoolTrimTo(m_pool, 0), "cudaMemPoolTrimTo");
}

std::uint64_t DevicePool::reserved_bytes() const {
  std::uint64_t bytes = 0;
  require(cudaMemPoolGetAttribute(m_pool, cudaMemPoolAttrReservedMemCurrent, &bytes),
          "cudaMemPoolGetAttribute");
  return bytes;
}

}  // namespace kformer::Impl::cuda
