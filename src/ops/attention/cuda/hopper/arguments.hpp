// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include "ops/attention/cuda/gradients.hpp"
#include "ops/common/cuda/tensor_map.hpp"

/// \file
/// What the kernels of sm_90a need besides: the arrays whose tiles are copied. Free of Kokkos.

namespace kformer::Impl::cuda {

/// The head dimensions that there are kernels for; q, k and v have the same.
template <int... features>
using FeatureList = std::integer_sequence<int, features...>;
using WarpgroupForwardFeatures = FeatureList<64, 96, 128, 256>;
using WarpgroupBackwardFeatures = FeatureList<64, 128>;

/// (feature, token, head, batch); the kernels choose the boxes.
struct AttentionShapes {
  TensorShape q, k, v;
};

/// \pre all head dimensions are the same of `WarpgroupForwardFeatures`, and no extent is 0
/// \param multiprocessors  of the device
/// \throws std::runtime_error if CUDA refuses the launch or a shape
void attention_forward_wgmma(Stream stream, int multiprocessors, Half type, const AttentionArguments& a,
                             const AttentionShapes& shapes, const Sequences& sequences);

/// (feature, token, head, batch), as above.
struct GradientShapes {
  TensorShape q, k, v, dout;
};

/// δ is there already.
/// \pre all head dimensions are the same of `WarpgroupBackwardFeatures`, no extent is 0, and there is no soft
/// cap
/// \throws std::runtime_error if CUDA refuses a launch or a shape
void attention_backward_wgmma(Stream stream, Half type, const GradientArguments& g,
                              const GradientShapes& shapes, const Sequences& sequences);

}  // namespace kformer::Impl::cuda
