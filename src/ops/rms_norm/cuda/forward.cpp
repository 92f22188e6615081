// SPDX-License-Identifier: MIT
#include "ops/rms_norm/cuda/forward.hpp"

namespace kformer::Impl::cuda {

void rms_norm_forward(Stream stream, DType type, const RmsNormForwardArguments& a, std::int64_t rows) {
  with_float_number(type, [&]<class T>() {
    with_row_shape(a.hidden / per_chunk<T>, [&]<class Shape>() {
      const std::int64_t blocks = (rows + Shape::rows - 1) / Shape::rows;
      constexpr const char* label = "kformer::rms_norm_forward[cuda_vector]";
      if (a.residual.data)
        launch(label, stream, blocks, RmsNormForwardKernel<T, Shape, true>{a, rows});
      else
        launch(label, stream, blocks, RmsNormForwardKernel<T, Shape, false>{a, rows});
    });
  });
}

}  // namespace kformer::Impl::cuda
