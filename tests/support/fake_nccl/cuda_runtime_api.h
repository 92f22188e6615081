// SPDX-License-Identifier: MIT
#pragma once

/// \file
/// The calls of the CUDA runtime that src/parallel makes, on streams that are imagined: work on them goes on whenever
/// somebody asks for an event or for the state of a communicator. All memory is that of a device, unless it is said to be the host's.

using cudaError_t = int;
struct FakeStream;
struct FakeEvent;
using cudaStream_t = FakeStream*;
using cudaEvent_t = FakeEvent*;
inline constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotReady = 600;
inline constexpr unsigned cudaStreamNonBlocking = 1;
enum cudaMemoryType {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice,
  cudaMemoryTypeManaged
};
struct cudaPointerAttributes {
  cudaMemoryType type;
};

namespace kformer::Testing {
inline const void* memory_of_the_host = nullptr;  ///< no message may begin there
}

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second);
