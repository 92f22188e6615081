// SPDX-License-Identifier: MIT
#include "ops/cross_entropy/cuda/forward.hpp"

namespace kformer::Impl::cuda {

namespace {

template <class T, class Logits, bool with_below>
void launch_forward(Stream stream, std::int64_t rows, const CrossEntropyArguments& a) {
  launch("kformer::cross_entropy_forward[cuda_chunks]", stream, rows,
         CrossEntropyForwardKernel<T, Logits, with_below>{a});
}

template <class T, class Logits>
void launch_forward(Stream stream, std::int64_t rows, const CrossEntropyArguments& a) {
  if (a.label_smoothing > 0)
    launch_forward<T, Logits, true>(stream, rows, a);
  else
    launch_forward<T, Logits, false>(stream, rows, a);
}

}  // namespace

void cross_entropy_forward(Stream stream, DType type, std::int64_t rows, const CrossEntropyArguments& a) {
  with_float_number(type, [&]<class T>() {
    if (a.softcap > 0)
      launch_forward<T, CappedLogits>(stream, rows, a);
    else
      launch_forward<T, PlainLogits>(stream, rows, a);
  });
}

}  // namespace kformer::Impl::cuda
