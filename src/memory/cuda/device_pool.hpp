// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// \file
/// The default memory pool of a CUDA device, free of Kokkos (CUDA Programming Guide, "Stream-Ordered Memory
/// Allocator"). The pool is the driver's: this is a handle, and there is no other state.

namespace kformer::Impl::cuda {

class DevicePool {
 public:
  /// Raises the pool's release threshold, unless the program has set one.
  explicit DevicePool(int device);

  /// Whether the device has memory pools; if not, call nothing else.
  bool exists() const { return m_pool != nullptr; }
  /// Memory for later work on the stream. If memory is short, waits for the device, returns to it what is
  /// not in use, and tries once more. Null if it is still short.
  void* allocate(std::size_t bytes, cudaStream_t stream) const;
  /// Frees memory after the work that is on the stream.
  void free(void* data, cudaStream_t stream) const;
  /// Waits for all work of the device.
  void wait() const;
  /// Waits for all work of the device and returns to it what is not in use.
  void trim() const;
  /// Device bytes that the pool holds, in use or not.
  std::uint64_t reserved_bytes() const;

 private:
  int m_device;
  cudaMemPool_t m_pool = nullptr;
};

}  // namespace kformer::Impl::cuda
