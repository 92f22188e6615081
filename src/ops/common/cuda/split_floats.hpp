// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/tf32_instructions.hpp"

/// \file
/// Products of floats on tensor cores: x = high + low, each of the 11 digits of TF32, and x · y ≈ low · high + high · low
/// + high · high. What is missing is below 2⁻²¹ of the product. Tensor cores cut off what they add, so they add only eight
/// products at a time, and float additions do the rest (Ootomo and Yokota, arXiv:2203.03341).

namespace kformer::Impl::cuda {

/// Both parts, as tensor cores read them.
struct SplitFloat {
  std::uint32_t high, low;
};

/// Dekker's splitting (Numer. Math. 18, 1971), with one product less. NaN from 2¹¹⁵ on; the last digit is 2⁻¹³⁶ at most.
KFORMER_DEVICE SplitFloat split(float x) {
  const float wide = rounded_product(x, 8193), high = fused_multiply_add(x, -8192, wide);
  return {float_as_bits(high), float_as_bits(x - high) & 0xffffe000u};
}

/// What a thread has of a factor: `count` numbers.
template <int count>
struct SplitFragment {
  std::uint32_t high[count], low[count];

  KFORMER_DEVICE void put(int i, float x) {
    const SplitFloat s = split(x);
    high[i] = s.high, low[i] = s.low;
  }
};
using SplitRows = SplitFragment<4>;     ///< 16 × 8 of the left factor
using SplitColumns = SplitFragment<2>;  ///< 8 × 8 of the right factor

/// sum[m][first + n] += a[m] · b[n].
template <int rows, int columns, int all>
KFORMER_DEVICE void add_split_products(float (&sum)[rows][all][4], int first, const SplitRows (&a)[rows],
                                       const SplitColumns (&b)[columns]) {
  static_assert(all % columns == 0);
  float product[rows][columns][4] = {};
  const auto add = [&](auto left, auto right) {
    KFORMER_DEVICE_UNROLL
    for (int m = 0; m < rows; ++m) {
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < columns; ++n)
        multiply_add_tf32(product[m][n], a[m].*left, (b[n].*right)[0], (b[n].*right)[1]);
    }
  };
  add(&SplitRows::low, &SplitColumns::high);
  add(&SplitRows::high, &SplitColumns::low);
  add(&SplitRows::high, &SplitColumns::high);
  KFORMER_DEVICE_UNROLL
  for (int m = 0; m < rows; ++m) {
    KFORMER_DEVICE_UNROLL
    for (int n = 0; n < columns; ++n) {
      KFORMER_DEVICE_UNROLL
      for (int i = 0; i < 4; ++i) sum[m][first + n][i] += product[m][n][i];
    }
  }
}

/// Whether a sum of split products may lack digits: it is not finite, or so small that those below 2⁻¹³⁶ count.
KFORMER_DEVICE bool is_doubtful(float sum) {
  constexpr std::uint32_t least = (127u - 100) << 23, infinite = 255u << 23;  // 2⁻¹⁰⁰
  const std::uint32_t magnitude = float_as_bits(sum) & 0x7fffffff;
  return magnitude != 0 && magnitude - least >= infinite - least;
}
/// Whether a number of row `half`, of the two that a thread has parts of, is doubtful.
template <int columns>
KFORMER_DEVICE bool some_doubtful(const float (&sum)[columns][4], int half) {
  bool found = false;
  KFORMER_DEVICE_UNROLL
  for (int n = 0; n < columns; ++n)
    found = found || is_doubtful(sum[n][2 * half]) || is_doubtful(sum[n][2 * half + 1]);
  return found;
}

}  // namespace kformer::Impl::cuda
