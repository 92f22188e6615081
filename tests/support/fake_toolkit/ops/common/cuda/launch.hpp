// SPDX-License-Identifier: MIT
#pragma once

/// \file
/// In place of the header of this name, whose launches only nvcc reads: the runtime of CUDART_VERSION.

enum cudaError_t { cudaSuccess };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
inline constexpr unsigned long long cudaEnableDefault = 0;

// The newer of both came with 12.5; CUDA 13 calls the older one deprecated.
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*);
#else
cudaError_t cudaGetDriverEntryPoint(const char*, void**, unsigned long long, cudaDriverEntryPointQueryResult*);
#endif

namespace kformer::Impl::cuda {

void check(cudaError_t error, const char* label);

}  // namespace kformer::Impl::cuda
