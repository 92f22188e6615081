// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "ops/common/simd/isa.hpp"

/// \file
/// The optimizer step as kernels see it: addresses and numbers. Free of Kokkos.

namespace kformer::Impl::host {

/// The arrays of one parameter, dense; see `AdamWParameter`.
struct AdamWItem {
  void* weight;
  const void* gradient;
  void* master;
  void *m, *v;
  float *m_scale, *v_scale;
  std::int64_t size;
  double weight_decay;
};

/// Added to the norm where gradients are clipped, as PyTorch's `clip_grad_norm_` does.
inline constexpr double clip_epsilon = 1e-6;

/// What is the same for all elements of a step.
struct AdamWNumbers {
  double learning_rate;
  double first, second;      // 1 − β1, 1 − β2
  double first_correction;   // 1 / (1 − β1^t)
  double second_correction;  // 1 / √(1 − β2^t): of √v
  double eps;
  double gradient_factor;  // what gradients are multiplied by
};

/// A map of 8-bit states: values by code, and the borders above them.
struct AdamWMap {
  const float *value, *border;
};

/// Kernels of one storage type. Ranges are of elements; those of coded states begin with a block.
struct AdamWKernels {
  void (*step)(const AdamWItem& item, std::int64_t begin, std::int64_t end, const AdamWNumbers& numbers);
  // Null for double.
  void (*coded_step)(const AdamWItem& item, std::int64_t begin, std::int64_t end, const AdamWNumbers& numbers,
                     const AdamWMap& m_map, const AdamWMap& v_map);
  double (*sum_of_squares)(const void* gradient, std::int64_t begin, std::int64_t end);
};

template <Isa isa>
const AdamWKernels& adamw_kernels(DType storage);

}  // namespace kformer::Impl::host
