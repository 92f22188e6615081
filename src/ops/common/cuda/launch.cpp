// SPDX-License-Identifier: MIT
#include "ops/common/cuda/launch.hpp"

#include "kformer/core/error.hpp"

namespace kformer::Impl::cuda {

void check(cudaError_t error, const char* label) {
  if (error != cudaSuccess) throw Error(std::string(label) + ": CUDA says: " + cudaGetErrorString(error));
}

}  // namespace kformer::Impl::cuda
