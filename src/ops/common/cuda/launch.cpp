// SPDX-License-Identifier: MIT
#include "ops/common/cuda/launch.hpp"

#include <stdexcept>

namespace kformer::Impl::cuda {

void check(cudaError_t error, const char* label) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(label) + ": CUDA says: " + cudaGetErrorString(error));
}

}  // namespace kformer::Impl::cuda
