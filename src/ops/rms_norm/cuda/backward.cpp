// SPDX-License-Identifier: MIT
#include "ops/rms_norm/cuda/backward.hpp"

namespace kformer::Impl::cuda {

void rms_norm_backward(Stream stream, Storage storage, const RmsNormBackwardArguments& a) {
  with_storage(storage, [&]<class T>() {
    with_row_shape(a.hidden / T::per_chunk, [&]<class Shape>() {
      constexpr const char* label = "kformer::rms_norm_backward[cuda_vector]";
      if (a.dsum.data)
        launch(label, stream, a.blocks, RmsNormBackwardKernel<T, Shape, true>{a});
      else
        launch(label, stream, a.blocks, RmsNormBackwardKernel<T, Shape, false>{a});
    });
  });
  constexpr int columns = RmsNormWeightKernel::columns;
  launch("kformer::rms_norm_backward_weight[cuda_vector]", stream, (a.hidden + columns - 1) / columns,
         RmsNormWeightKernel{a});
}

}  // namespace kformer::Impl::cuda
