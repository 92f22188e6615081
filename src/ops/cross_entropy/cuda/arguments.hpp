// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/launch.hpp"
#include "ops/common/cuda/numbers.hpp"
#include "ops/cross_entropy/host/arguments.hpp"

/// \file
/// Cross entropy as the CUDA kernels see it. Free of Kokkos.

namespace kformer::Impl::cuda {

using host::CrossEntropyArguments;

/// The options in the arithmetic of kernels: double is slow on many devices.
struct CrossEntropyNumbers {
  float smoothing, z_loss, softcap;
  float own, other;  ///< shares of the target and of any other token

  explicit CrossEntropyNumbers(const CrossEntropyArguments& a)
      : smoothing(static_cast<float>(a.label_smoothing)),
        z_loss(static_cast<float>(a.z_loss)),
        softcap(static_cast<float>(a.softcap)) {
    const double share = a.label_smoothing / static_cast<double>(a.vocabulary);
    own = static_cast<float>(1 - a.label_smoothing + share);
    other = static_cast<float>(share);
  }
};

/// One block per row. Float, bf16 and f16.
/// \throws std::runtime_error if CUDA refuses the launch
void cross_entropy_forward(Stream stream, DType type, std::int64_t rows, const CrossEntropyArguments& a);
/// Rows of logits and of their gradient have the same alignment with respect to 16 bytes.
/// \throws std::runtime_error if CUDA refuses the launch
void cross_entropy_backward(Stream stream, DType type, std::int64_t rows, const CrossEntropyArguments& a);

}  // namespace kformer::Impl::cuda
