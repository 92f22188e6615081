// SPDX-License-Identifier: MIT
#include "ops/swiglu/cuda/kernels.hpp"

namespace kformer::Impl::cuda {

namespace {

template <template <class> class Kernel, class Arguments>
void launch_chunks(const char* label, Stream stream, DType type, const Arguments& a, std::int64_t rows,
                   std::int64_t hidden) {
  with_float_number(type, [&]<class T>() {
    const std::int64_t per_row = hidden / per_chunk<T>, count = rows * per_row;
    const Kernel<T> kernel{{a, static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(per_row)}};
    launch(label, stream, (count + kernel.threads - 1) / kernel.threads, kernel);
  });
}

}  // namespace

void swiglu_forward(Stream stream, DType type, const SwigluForwardArguments& a, std::int64_t rows,
                    std::int64_t hidden) {
  launch_chunks<SwigluForwardKernel>("kformer::swiglu_forward[cuda_vector]", stream, type, a, rows, hidden);
}

void swiglu_backward(Stream stream, DType type, const SwigluBackwardArguments& a, std::int64_t rows,
                     std::int64_t hidden) {
  launch_chunks<SwigluBackwardKernel>("kformer::swiglu_backward[cuda_vector]", stream, type, a, rows, hidden);
}

}  // namespace kformer::Impl::cuda
