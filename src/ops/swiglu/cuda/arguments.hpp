// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/launch.hpp"
#include "ops/common/cuda/vectors.hpp"
#include "ops/swiglu/host/arguments.hpp"

/// \file
/// SwiGLU as the CUDA kernels see it. Free of Kokkos.

namespace kformer::Impl::cuda {

using host::SwigluBackwardArguments;
using host::SwigluForwardArguments;

/// \throws std::runtime_error if CUDA refuses the launch
void swiglu_forward(Stream stream, DType type, const SwigluForwardArguments& a, std::int64_t rows,
                    std::int64_t hidden);
void swiglu_backward(Stream stream, DType type, const SwigluBackwardArguments& a, std::int64_t rows,
                     std::int64_t hidden);

}  // namespace kformer::Impl::cuda
