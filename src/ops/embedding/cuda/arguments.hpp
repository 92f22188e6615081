// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/dtype.hpp"
#include "ops/common/cuda/launch.hpp"
#include "ops/embedding/host/arguments.hpp"

/// \file
/// The embedding's gradient as the CUDA kernel sees it. Free of Kokkos.

namespace kformer::Impl::cuda {

using host::EmbeddingBackwardArguments;

inline constexpr int embedding_threads = 128;
/// Each class has blocks of threads that read all ids. More classes find more rows at once. A power of two.
inline constexpr std::int64_t embedding_classes = 512;

/// Columns of a block of threads: 16 bytes of dy per thread.
constexpr std::int64_t embedding_columns(DType type) {
  return embedding_threads * 16 / static_cast<std::int64_t>(size_of(type));
}

/// Adds to dweight. Float, bf16 and f16.
/// \throws Error if CUDA refuses the launch
void embedding_backward(Stream stream, DType type, const EmbeddingBackwardArguments& a);

}  // namespace kformer::Impl::cuda
