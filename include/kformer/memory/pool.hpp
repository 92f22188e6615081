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
/// Where the blocks of a ledger get their memory: on NVIDIA GPUs from the device's stream-ordered memory pool,
/// elsewhere from kokkos_malloc.

namespace kformer {

/// Memory that is given back when it dies; null if it could not be had.
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

/// The memory of a space. Kokkos Tools see what is taken and given back, with label and bytes.
template <class MemorySpace>
struct Pool {
  /// `bytes` bytes, at least one, for work that is launched on `exec` from now on. They are given back after
  /// the work that was launched on `exec` before they die; `exec` lives as long as they do.
  template <class Exec>
  static PooledMemory take(const Exec& exec, const std::string& label, std::size_t bytes) {
    // kokkos_free promises to free and nothing about work that still runs (Kokkos API, "kokkos_free").
    return Impl::kokkos_memory<MemorySpace>(label, bytes, [exec] { exec.fence("kformer::Pool::give_back"); });
  }
  /// `bytes` bytes, at least one, for work on any instance. They are given back as kokkos_free does it.
  static PooledMemory take(const std::string& label, std::size_t bytes) {
    return Impl::kokkos_memory<MemorySpace>(label, bytes, [] {});
  }
  /// Bytes that the pool holds of the device, in use or not; nothing where there is no pool.
  static std::optional<std::uint64_t> reserved_bytes() { return {}; }
  /// Waits for the device and gives back to it what no block uses.
  static void trim() {}
};

// In such a build the host may read device memory, which a pool's is not fit for.
#if defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_IMPL_CUDA_UNIFIED_MEMORY)
/// The default memory pool of the CUDA device. What blocks give back stays in the pool for the next ones: the
/// pool's release threshold is raised to the maximum, unless the program has set one. A device without memory
/// pools gets kokkos_malloc.
template <>
struct Pool<Kokkos::CudaSpace> {
  /// `bytes` bytes, at least one, for work that is launched on `exec` from now on. They are given back after
  /// the work that was launched on `exec` before they die. Nothing waits: both are steps of the instance's
  /// stream, which must live as long as they do.
  /// \throws Error with what CUDA says, if that is not that memory is short
  static PooledMemory take(const Kokkos::Cuda& exec, const std::string& label, std::size_t bytes);
  /// `bytes` bytes, at least one, for work on any instance: waits for the default instance. They are given back
  /// when the device has done all its work, as kokkos_free does it.
  /// \throws Error with what CUDA says, if that is not that memory is short
  static PooledMemory take(const std::string& label, std::size_t bytes);
  /// Bytes that the pool holds of the device Kokkos runs on, in use or not; nothing if it has no pool.
  static std::optional<std::uint64_t> reserved_bytes();
  /// Waits for the device and gives back to it what no block uses.
  static void trim();
};
#endif

}  // namespace kformer
