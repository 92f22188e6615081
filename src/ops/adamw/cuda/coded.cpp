// SPDX-License-Identifier: MIT
#include "ops/adamw/cuda/coded.hpp"

namespace kformer::Impl::cuda {

void adamw_coded_step(Stream stream, DType type, const AdamWPieces& pieces, const AdamWNumbers& numbers,
                      const AdamWScaling& scaling) {
  with_float_number(type, [&]<class T>() {
    launch("kformer::adamw_coded[cuda_chunks]", stream, pieces.pieces,
           CodedAdamWKernel<T>{pieces, AdamWRule<float>(numbers), scaling});
  });
}

}  // namespace kformer::Impl::cuda
