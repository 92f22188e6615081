// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>

/// \file
/// Work on imagined streams.

namespace kformer::Testing {

/// Adds work to a stream.
/// \param advance goes on without waiting, and says whether it has ended
void enqueue(cudaStream_t stream, std::function<bool()> advance);

/// Goes on with the work of all streams, each in order, as far as it can.
void advance_streams();

/// Waits until all work has ended, as calls of CUDA do that free memory.
void wait_for_device();

/// From how much work on a stream on the host waits to add events to it.
inline std::atomic<std::size_t> most_work = std::numeric_limits<std::size_t>::max();

}  // namespace kformer::Testing
