// SPDX-License-Identifier: MIT
#include "kformer/memory/pool.hpp"

#if defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_IMPL_CUDA_UNIFIED_MEMORY)

#include "memory/cuda/device_pool.hpp"

namespace kformer {

namespace {

using Impl::cuda::DevicePool;

// In the order of the instance's stream; where memory is for all instances, `before_free` waits for them.
template <class Wait>
PooledMemory take_in_order(const DevicePool& pool, const Kokkos::Cuda& exec, const std::string& label,
                           std::size_t bytes, Wait before_free) {
  void* const data = pool.allocate(bytes, exec.cuda_stream());
  if (data == nullptr) return {};
  const auto space = Kokkos::Tools::make_space_handle(Kokkos::CudaSpace::name());
  Kokkos::Tools::allocateData(space, label, data, bytes);
  return {
      static_cast<std::byte*>(data), [=](std::byte* memory) {
        if (!Kokkos::is_initialized())
          Kokkos::abort(("kformer::MemoryBlock: '" + label + "' is released after Kokkos::finalize\n").c_str());
        Kokkos::Tools::deallocateData(space, label, memory, bytes);
        before_free();
        pool.free(memory, exec.cuda_stream());
      }};
}

DevicePool device_pool() { return DevicePool(Kokkos::Cuda().cuda_device()); }

}  // namespace

PooledMemory Pool<Kokkos::CudaSpace>::take(const Kokkos::Cuda& exec, const std::string& label,
                                           std::size_t bytes) {
  const DevicePool pool(exec.cuda_device());
  if (pool.exists()) return take_in_order(pool, exec, label, bytes, [] {});
  return Impl::kokkos_memory<Kokkos::CudaSpace>(label, bytes,
                                                [exec] { exec.fence("kformer::Pool::give_back"); });
}

PooledMemory Pool<Kokkos::CudaSpace>::take(const std::string& label, std::size_t bytes) {
  const DevicePool pool = device_pool();
  if (!pool.exists()) return Impl::kokkos_memory<Kokkos::CudaSpace>(label, bytes, [] {});
  const Kokkos::Cuda exec;
  PooledMemory memory = take_in_order(pool, exec, label, bytes, [pool] { pool.wait(); });
  if (memory) exec.fence("kformer::Pool::take");
  return memory;
}

std::optional<std::uint64_t> Pool<Kokkos::CudaSpace>::reserved_bytes() {
  const DevicePool pool = device_pool();
  if (!pool.exists()) return {};
  return pool.reserved_bytes();
}

void Pool<Kokkos::CudaSpace>::trim() {
  const DevicePool pool = device_pool();
  if (pool.exists()) pool.trim();
}

}  // namespace kformer

#endif
