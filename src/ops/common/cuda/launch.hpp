// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "ops/common/cuda/instructions.hpp"
#include "ops/common/cuda/machine.hpp"

/// \file
/// Launches of CUDA kernels. A kernel is a struct with `threads`, `blocks_per_multiprocessor` (the least that
/// have to fit), `shared_bytes`, and `operator()() const` for one thread; it is the argument of the launch. One
/// that does not run on every machine of machine.hpp says so with `runs_on`.

namespace kformer::Impl::cuda {

#if defined(__CUDACC__)

using Stream = cudaStream_t;

// The numbers are part of the kernel's name, where the compiler's report and profilers show them.
template <class K, int threads, int shared_bytes>
__global__ void __launch_bounds__(threads, K::blocks_per_multiprocessor)
    run_kernel(const __grid_constant__ K kernel) {
  kernel();
}

/// \throws Error with the name of the launch if CUDA refuses
void check(cudaError_t error, const char* label);

/// Launches `blocks` blocks on the stream.
template <class K>
void launch(const char* label, Stream stream, std::int64_t blocks, const K& kernel) {
  static_assert(fits_its_machines<K>(), "its blocks do not fit on a multiprocessor it is meant for");
  constexpr auto run = run_kernel<K, K::threads, K::shared_bytes>;
  if (blocks == 0) return;
  if constexpr (K::shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, K::shared_bytes), label);
  run<<<static_cast<unsigned>(blocks), K::threads, K::shared_bytes, stream>>>(kernel);
  check(cudaGetLastError(), label);
}

#else

/// Emulated launches are done when they return.
using Stream = const void*;

template <class K>
void launch(const char*, Stream, std::int64_t blocks, const K& kernel) {
  static_assert(fits_its_machines<K>(), "its blocks do not fit on a multiprocessor it is meant for");
  emulation::Block::run_grid(static_cast<int>(blocks), K::threads, K::shared_bytes, [&kernel] { kernel(); });
}

#endif

}  // namespace kformer::Impl::cuda
