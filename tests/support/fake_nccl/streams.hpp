// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

/// \file
/// Work on imagined streams.

namespace kformer::Testing {

/// Adds work to a stream.
/// \param advance goes on without waiting, and says whether it has ended
void enqueue(cudaStream_t stream, std::function<bool()> advance);

/// Goes on with the work of all streams, each in order, as far as it can.
void advance_streams();

}  // namespace kformer::Testing
