// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "ops/common/cuda/launch.hpp"
#include "ops/linear/cuda/matmul_plan.hpp"

/// \file
/// Matrix products by cuBLASLt. Free of Kokkos.

namespace kformer::Impl::cuda {

struct CublasLt {
  static constexpr const char* name = "cublaslt";

  /// Why cuBLASLt has no algorithm for this on the current device, or nothing. No algorithm rounds factors to
  /// fewer bits than they are stored with, or sums in fewer bits than `plan.compute`.
  static std::string refusal(const MatmulPlan& plan);

  /// Launches the product on the stream. Algorithms that need more than `workspace_bytes` are not considered.
  /// \throws NotSupported, OutOfMemory or Error with the label and what cuBLASLt said
  static void run(const char* label, Stream stream, const MatmulPlan& plan, void* workspace,
                  std::size_t workspace_bytes);
};

}  // namespace kformer::Impl::cuda
