// SPDX-License-Identifier: MIT
#include "ops/linear/cuda/dots.hpp"

namespace kformer::Impl::cuda {

void linear_dots(Stream stream, DType type, const LinearDotArguments& a) {
  if (a.rows == 0) return;
  with_float_number(type, [&]<class T>() {
    const auto with_rows = [&]<int rows>() {
      launch("kformer::linear_forward[cuda_dots]", stream, (a.out + linear_dot_cols - 1) / linear_dot_cols,
             LinearDotKernel<T, rows>{a});
    };
    if (a.rows == 1)
      with_rows.template operator()<1>();
    else if (a.rows == 2)
      with_rows.template operator()<2>();
    else if (a.rows == 3)
      with_rows.template operator()<3>();
    else
      with_rows.template operator()<linear_dot_rows>();
  });
}

}  // namespace kformer::Impl::cuda
