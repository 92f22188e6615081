// SPDX-License-Identifier: MIT
#include "ops/rms_norm/cuda/backward.hpp"

namespace kformer::Impl::cuda {

void rms_norm_backward(Stream stream, DType type, const RmsNormBackwardArguments& a) {
  with_float_number(type, [&]<class T>() {
    with_row_shape(a.hidden / per_chunk<T>, [&]<class Shape>() {
      constexpr const char* label = "kformer::rms_norm_backward[cuda_vector]";
      if (a.dsum.data)
        launch(label, stream, a.blocks, RmsNormBackwardKernel<T, Shape, true>{a});
      else
        launch(label, stream, a.blocks, RmsNormBackwardKernel<T, Shape, false>{a});
    });
  });
  if (a.dweight == nullptr) return;
  constexpr int columns = RmsNormWeightKernel::columns;
  launch("kformer::rms_norm_backward_weight[cuda_vector]", stream, (a.hidden + columns - 1) / columns,
         RmsNormWeightKernel{a});
}

}  // namespace kformer::Impl::cuda
