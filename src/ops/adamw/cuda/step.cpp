// SPDX-License-Identifier: MIT
#include "ops/adamw/cuda/step.hpp"

namespace kformer::Impl::cuda {

void adamw_step(Stream stream, DType type, const AdamWPieces& pieces, const AdamWNumbers& numbers,
                const AdamWScaling& scaling) {
  with_number_type(type, [&]<class T>() {
    launch("kformer::adamw[cuda_chunks]", stream, pieces.pieces,
           AdamWKernel<T>{pieces, AdamWRule<Arithmetic<T>>(numbers), scaling});
  });
}

}  // namespace kformer::Impl::cuda
