// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/isa.hpp"
#include "ops/common/simd/rows.hpp"

/// \file
/// The embedding as the host's SIMD kernels see it. Free of Kokkos.

namespace kformer::Impl::host {

struct EmbeddingForwardArguments {
  const std::int32_t* ids;
  InputRows weight;
  OutputRows y;
  std::int64_t rows, vocabulary, hidden;
};

struct EmbeddingBackwardArguments {
  const std::int32_t* ids;
  InputRows dy;
  void* dweight;  // in the type of arithmetic
  std::int64_t dweight_stride;
  std::int64_t rows, vocabulary, hidden;
  std::int64_t classes;  // a power of two
};

/// A class of ids, those whose lowest bits are `index`, in some columns.
struct EmbeddingClass {
  std::int64_t index, first_column, columns;
};

/// The kernels of one instruction set and storage type.
struct EmbeddingKernels {
  void (*forward)(const EmbeddingForwardArguments&, std::int64_t first_row, std::int64_t end);
  void (*backward)(const EmbeddingBackwardArguments&, const EmbeddingClass&);
};

template <Isa isa>
const EmbeddingKernels& embedding_kernels(DType storage);

}  // namespace kformer::Impl::host
