// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/instructions.hpp"
#include "ops/common/cuda/tensor_map.hpp"
#if defined(__CUDACC__)
#include "ops/common/cuda/hopper_products.hpp"
#endif

/// \file
/// What kernels of sm_90a use of the machine besides instructions.hpp: barriers in shared memory that count
/// arrivals and bytes, copies of tiles by the Tensor Memory Accelerator, products of a warpgroup (four warps).

namespace kformer::Impl::cuda {

inline constexpr int warpgroup_threads = 128;

/// A matrix of 16-bit numbers in shared memory under the swizzle of 128 or of 64 bytes, for products of a
/// warpgroup. PTX ISA, wgmma, "matrix descriptor format": bits 0-13 the address, 16-29 the leading and 32-45 the
/// stride byte offset, each without its four lowest bits, 62-63 the swizzle, 1 for 128 bytes and 2 for 64.
KFORMER_DEVICE std::uint64_t matrix_descriptor(SharedAddress start, int leading_bytes, int stride_bytes,
                                               int swizzle_bytes) {
  const auto encoded = [](std::uint32_t x) { return static_cast<std::uint64_t>((x & 0x3ffff) >> 4); };
  return encoded(start) | encoded(static_cast<std::uint32_t>(leading_bytes)) << 16 |
         encoded(static_cast<std::uint32_t>(stride_bytes)) << 32 |
         std::uint64_t(swizzle_bytes == 128 ? 1 : 2) << 62;
}

#if defined(__CUDACC__)

/// A barrier whose phase ends when `arrivals` threads have come and all bytes they announced.
KFORMER_DEVICE void init_barrier(SharedAddress barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Shows barriers just made to the threads and copies that will use them.
KFORMER_DEVICE void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\n" ::: "memory");
}
KFORMER_DEVICE void arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
KFORMER_DEVICE void arrive_and_expect(SharedAddress barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Waits for the end of a phase of this parity; the phase before the first has parity 1. The machine answers each thread by
/// itself: before instructions of a whole warp comes a `warp_barrier`.
KFORMER_DEVICE void wait_phase(SharedAddress barrier, int parity) {
  std::uint32_t ended = 0;
  while (!ended)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
}
/// What this thread read or wrote in shared memory comes before what copies of tiles will.
KFORMER_DEVICE void fence_tile_copies() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }
/// Starts the copy of the box at these coordinates; the barrier counts its bytes.
KFORMER_DEVICE void copy_tile(SharedAddress to, const TensorMap& map, SharedAddress barrier, int c0, int c1,
                              int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
/// Waits until `count` threads have come to barrier `id`, those included that only arrive.
KFORMER_DEVICE void wait_at_barrier(int id, int count) {
  asm volatile("barrier.cta.sync.aligned %0, %1;\n" ::"r"(id), "r"(count) : "memory");
}
KFORMER_DEVICE void arrive_at_barrier(int id, int count) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;\n" ::"r"(id), "r"(count) : "memory");
}
/// Whether the predicate holds for any of the `count` threads that arrive at barrier `id`.
KFORMER_DEVICE bool any_of_threads(int id, int count, bool mine) {
  std::uint32_t found;
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.or.pred.aligned q, %2, %3, p;\n"
      "selp.u32 %0, 1, 0, q;\n}\n"
      : "=r"(found)
      : "r"(static_cast<std::uint32_t>(mine)), "r"(id), "r"(count)
      : "memory");
  return found != 0;
}
/// The registers that each thread of the warpgroup has from now on.
template <int registers>
KFORMER_DEVICE void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(registers));
}
template <int registers>
KFORMER_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(registers));
}

#else

void init_barrier(SharedAddress barrier, int arrivals);
inline void publish_barriers() {}
void arrive(SharedAddress barrier);
void arrive_and_expect(SharedAddress barrier, int bytes);
void wait_phase(SharedAddress barrier, int parity);
inline void fence_tile_copies() {}
void copy_tile(SharedAddress to, const TensorMap& map, SharedAddress barrier, int c0, int c1, int c2, int c3);
inline void wait_at_barrier(int id, int count) { emulation::Block::current().barrier(id, count); }
inline void arrive_at_barrier(int id, int count) { emulation::Block::current().arrive(id, count); }
inline bool any_of_threads(int id, int count, bool mine) {
  return emulation::Block::current().any(id, count, mine);
}
template <int registers>
void give_registers_back() {}
template <int registers>
void take_registers() {}
inline void fence_products() { emulation::Block::current().fenced() = true; }
inline void commit_products() { emulation::Block::current().commit_group(emulation::Flight::products); }
template <int left>
void wait_products() {
  emulation::Block::current().wait_groups(left, emulation::Flight::products);
  emulation::Block::current().fenced() = false;
}
template <Half type, int columns>
void multiply_shared(float (&c)[columns / 8][4], std::uint64_t a, std::uint64_t b, bool add);
template <Half type, int columns>
void multiply_registers(float (&c)[columns / 8][4], const std::uint32_t (&a)[4], std::uint64_t b);

#endif

}  // namespace kformer::Impl::cuda
