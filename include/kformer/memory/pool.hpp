// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

/// \file
/// The memory source of ledger blocks: on NVIDIA GPUs the device's stream-ordered memory pool,
/// elsewhere kokkos_malloc.

namespace kformer {

/// Memory that is freed on destruction; null if the allocation failed.
using PooledMemory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

namespace Impl {

/// Memory of kokkos_malloc; `wait` is called before it is freed.
template <class MemorySpace, class Wait>
PooledMemory kokkos_memory(const std::string& label, std::size_t bytes, Wait wait) {
  try {
    return {static_cast<std::byte*>(Kokkos::kokkos_malloc<MemorySpace>(label, bytes)), [wait](std::byte* data) {
              wait();
              Kokkos::kokkos_free<MemorySpace>(data);
            }};
  } catch (const std::exception&) {  // of which type depends on the version of Kokkos
    return {};
  }
}

}  // namespace Impl

/// The memory of a space. Kokkos Tools see allocations and deallocations, with label and bytes.
template <class MemorySpace>
struct Pool {
  /// `bytes` bytes, at least one, for work launched on `exec` from now on. They are freed after
  /// the work launched on `exec` before their destruction; `exec` must outlive them.
  template <class Exec>
  static PooledMemory take(const Exec& exec, const std::string& label, std::size_t bytes) {
    // kokkos_free is not documented to wait for running work (Kokkos API, "kokkos_free"): fence first.
    return Impl::kokkos_memory<MemorySpace>(label, bytes, [exec] { exec.fence("kformer::Pool::give_back"); });
  }
  /// `bytes` bytes, at least one, for work on any instance. They are freed by kokkos_free.
  static PooledMemory take(const std::string& label, std::size_t bytes) {
    return Impl::kokkos_memory<MemorySpace>(label, bytes, [] {});
  }
  /// Device bytes that the pool holds, in use or not; empty if there is no pool.
  static std::optional<std::uint64_t> reserved_bytes() { return {}; }
  /// Waits for the device and returns unused memory to it.
  static void trim() {}
};

// With unified memory the host may read device memory, but not memory of a pool.
#if defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_IMPL_CUDA_UNIFIED_MEMORY)
/// The default memory pool of the CUDA device. Freed blocks stay in the pool for the next ones: the
/// pool's release threshold is raised to the maximum, unless the program has set one. A device without memory
/// pools gets kokkos_malloc.
template <>
struct Pool<Kokkos::CudaSpace> {
  /// `bytes` bytes, at least one, for work launched on `exec` from now on. They are freed after
  /// the work that was launched on `exec` before their destruction. Nothing waits: both are steps of the instance's
  /// stream, which must live as long as they do.
  /// \throws Error with CUDA's message, for any error except a lack of memory
  static PooledMemory take(const Kokkos::Cuda& exec, const std::string& label, std::size_t bytes);
  /// `bytes` bytes, at least one, for work on any instance: waits for the default instance. They are freed
  /// when the device has finished all its work, like kokkos_free.
  /// \throws Error with CUDA's message, for any error except a lack of memory
  static PooledMemory take(const std::string& label, std::size_t bytes);
  /// Bytes that the pool of Kokkos' device holds, in use or not; empty if it has no pool.
  static std::optional<std::uint64_t> reserved_bytes();
  /// Waits for the device and returns unused memory to it.
  static void trim();
};
#endif

}  // namespace kformer
