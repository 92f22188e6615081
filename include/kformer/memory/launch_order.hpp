// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <string>
#include <type_traits>

#include "kformer/core/error.hpp"

/// \file
/// Order between the work of two instances.

namespace kformer {

/// Work launched on `later` from now on starts after all work launched on `earlier` until now. On CUDA nothing
/// waits on the host; elsewhere the call waits for `earlier`.
template <class Exec>
void launch_after(const Exec& later, const Exec& earlier) {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
    cudaEvent_t event = nullptr;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventRecord(event, earlier.cuda_stream());
    if (error == cudaSuccess) error = cudaStreamWaitEvent(later.cuda_stream(), event, 0);
    // The runtime keeps the event until both streams have passed it.
    if (event) cudaEventDestroy(event);
    if (error != cudaSuccess) throw Error(std::string("kformer::launch_after: ") + cudaGetErrorString(error));
    return;
  }
#endif
  if (!(later == earlier)) earlier.fence("kformer::launch_after");
}

}  // namespace kformer
