// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/arguments.hpp"
#include "ops/common/cuda/tensor_map.hpp"

/// \file
/// What the kernels of sm_90a need besides: the arrays whose tiles are copied. Free of Kokkos.

namespace kformer::Impl::cuda {

/// (feature, token, head, batch); the kernels choose the boxes.
struct AttentionShapes {
  TensorShape q, k, v;
};

/// \pre all head dimensions are 64 or all are 128, nothing is packed, and no extent is 0
/// \throws std::runtime_error if CUDA refuses the launch or a shape
void attention_forward_wgmma(Stream stream, Half type, const AttentionArguments& a,
                             const AttentionShapes& shapes, const Sequences& sequences);

}  // namespace kformer::Impl::cuda
