// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "ops/common/simd/isa.hpp"

/// \file
/// Cross entropy as the host's SIMD kernels see it: addresses, strides in elements, numbers. Free of Kokkos.

namespace kformer::Impl::host {

/// Logits are of the storage type; loss, lse and dloss of the type of arithmetic, one per row. Forward writes
/// loss and lse, backward reads lse and dloss and writes dlogits.
struct CrossEntropyArguments {
  const void* logits;
  std::int64_t logits_stride, vocabulary;
  const std::int32_t* targets;
  void *loss, *lse;
  const void* dloss;
  void* dlogits;
  std::int64_t dlogits_stride;

  std::int32_t ignore_index;
  double label_smoothing, z_loss, softcap;
};

/// The kernels of one instruction set and storage type; both take the rows [begin, end).
struct CrossEntropyKernels {
  void (*forward)(const CrossEntropyArguments&, std::int64_t begin, std::int64_t end);
  void (*backward)(const CrossEntropyArguments&, std::int64_t begin, std::int64_t end);
};

template <Isa isa>
const CrossEntropyKernels& cross_entropy_kernels(DType storage);

}  // namespace kformer::Impl::host
