// SPDX-License-Identifier: MIT
#include "ops/quantized/cuda/dots.hpp"

namespace kformer::Impl::cuda {

void quantized_dots(Stream stream, DType type, QuantizedFormat format, const QuantizedDotArguments& a) {
  with_dots(type, format, a.rows, [&]<class T, QuantizedFormat kind, int rows>() {
    launch("kformer::quantized_linear_forward[cuda_dots]", stream, dot_blocks(a.rows, a.out),
           QuantizedDotKernel<T, kind, rows>{a});
  });
}

}  // namespace kformer::Impl::cuda
