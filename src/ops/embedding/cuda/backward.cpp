// SPDX-License-Identifier: MIT
#include "ops/embedding/cuda/backward.hpp"

namespace kformer::Impl::cuda {

void embedding_backward(Stream stream, DType type, const EmbeddingBackwardArguments& a) {
  const std::int64_t columns = embedding_columns(type);
  with_float_number(type, [&]<class T>() {
    launch("kformer::embedding_backward[cuda_vector]", stream, a.classes * ((a.hidden + columns - 1) / columns),
           EmbeddingBackwardKernel<T>{a});
  });
}

}  // namespace kformer::Impl::cuda
