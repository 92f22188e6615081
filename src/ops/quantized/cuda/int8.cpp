// SPDX-License-Identifier: MIT
#include "ops/quantized/cuda/int8.hpp"

namespace kformer::Impl::cuda {

namespace {
constexpr const char* label = "kformer::quantized_linear_forward[cuda_dots]";

template <class T>
void quantize_activations(Stream stream, bool by_row, const QuantizedDotArguments& a) {
  using ByGroup = GroupActivationsKernel<T>;
  if (by_row)
    launch(label, stream, a.rows, RowActivationsKernel<T>{a});
  else
    launch(label, stream, (a.rows * a.int8.row_groups + ByGroup::warps - 1) / ByGroup::warps, ByGroup{a});
}
}  // namespace

void quantized_int8_dots(Stream stream, DType type, QuantizedFormat format, const QuantizedDotArguments& a) {
  with_dots(type, format, a.rows, [&]<class T, QuantizedFormat kind, int rows>() {
    if constexpr (has_integer_codes(kind)) {
      quantize_activations<T>(stream, is_ternary(kind), a);
      launch(label, stream, dot_blocks(a.rows, a.out), QuantizedInt8Kernel<T, kind, rows>{a});
    }
  });
}

}  // namespace kformer::Impl::cuda
