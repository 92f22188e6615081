// SPDX-License-Identifier: MIT
#include "ops/adamw/cuda/norm.hpp"

namespace kformer::Impl::cuda {

void gradient_squares(Stream stream, DType type, const AdamWPieces& pieces, double* sums) {
  constexpr const char* label = "kformer::gradient_norm[cuda_chunks]";
  if (type == DType::f64)
    launch(label, stream, pieces.pieces, GradientSquaresKernel<double>{pieces, sums});
  else
    launch(label, stream, pieces.pieces, GradientSquaresKernel<float>{pieces, sums});
}

void gradient_root(Stream stream, DType type, const double* sums, std::int64_t count, void* norm) {
  constexpr const char* label = "kformer::gradient_norm_sum[cuda_chunks]";
  if (type == DType::f64)
    launch(label, stream, 1, GradientRootKernel<double>{sums, count, static_cast<double*>(norm)});
  else
    launch(label, stream, 1, GradientRootKernel<float>{sums, count, static_cast<float*>(norm)});
}

}  // namespace kformer::Impl::cuda
