// SPDX-License-Identifier: MIT
#include "ops/cross_entropy/cuda/backward.hpp"

namespace kformer::Impl::cuda {

void cross_entropy_backward(Stream stream, DType type, std::int64_t rows, const CrossEntropyArguments& a) {
  constexpr const char* label = "kformer::cross_entropy_backward[cuda_chunks]";
  with_float_number(type, [&]<class T>() {
    if (a.softcap > 0)
      launch(label, stream, rows, CrossEntropyBackwardKernel<T, CappedLogits>{a});
    else
      launch(label, stream, rows, CrossEntropyBackwardKernel<T, PlainLogits>{a});
  });
}

}  // namespace kformer::Impl::cuda
