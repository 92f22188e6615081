// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/arguments.hpp"

/// \file
/// Softmax as keys pass by: highest score and sum of weights of each row. A thread has two rows of every tile
/// of 16, which it shares with the three other threads of its group of four.

namespace kformer::Impl::cuda {

/// The result of a row.
struct RowSum {
  float inverse;  ///< of the sum of weights, or 0 where nothing was seen
  float lse;
};

/// The result of a row in a part of the keys. Values were summed with weights 2^(… − power).
struct alignas(8) RowPart {
  float power;  ///< of the largest weight, −∞ where nothing was seen
  float sum;    ///< of weights
};

inline constexpr float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;

/// 1 − 2/(e²ˣ + 1), and an odd polynomial where that would cancel.
KFORMER_DEVICE float hyperbolic_tangent(float x) {
  const float magnitude = x < 0 ? -x : x, square = x * x;
  if (magnitude < 0.125f) return x + x * square * (-1.0f / 3 + square * (2.0f / 15 + square * (-17.0f / 315)));
  const float y = 1 - 2 * reciprocal_fast(exp2_fast(magnitude * 2 * log2_e) + 1);
  return x < 0 ? -y : y;
}

/// What a product of query and key is multiplied with before 2 is raised to it, after the soft cap if there is
/// one.
KFORMER_DEVICE float exponent_factor(const AttentionRules& a) {
  return a.softcap > 0 ? log2_e : a.scale * log2_e;
}
/// What it is multiplied with inside the soft cap.
KFORMER_DEVICE float cap_factor(const AttentionRules& a) { return a.softcap > 0 ? a.scale / a.softcap : 0; }
KFORMER_DEVICE float capped(const AttentionRules& a, float product) {
  return a.softcap > 0 ? a.softcap * hyperbolic_tangent(product * cap_factor(a)) : product;
}

template <int row_tiles>
class Softmax {
 public:
  KFORMER_DEVICE explicit Softmax(const AttentionRules& a) : m_arguments(a), m_factor(exponent_factor(a)) {
    KFORMER_DEVICE_UNROLL
    for (int m = 0; m < row_tiles; ++m) {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        m_highest[m][half] = -infinity();
        m_sum[m][half] = 0;
      }
    }
  }

  /// softcap · tanh(scale · score / softcap), if there is a soft cap.
  template <int columns>
  KFORMER_DEVICE void cap(float (&score)[columns][4]) const {
    const float softcap = m_arguments.softcap;
    if (softcap <= 0) return;
    const float inner = cap_factor(m_arguments);
    KFORMER_DEVICE_UNROLL
    for (int n = 0; n < columns; ++n) {
      KFORMER_DEVICE_UNROLL
      for (int i = 0; i < 4; ++i) score[n][i] = softcap * hyperbolic_tangent(score[n][i] * inner);
    }
  }

  /// Weights in the place of scores, as far as is known; what was summed before is scaled to them.
  template <int columns, int features>
  KFORMER_DEVICE void weigh(int m, float (&score)[columns][4], float (&result)[features][4]) {
    KFORMER_DEVICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      float highest = m_highest[m][half];
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < columns; ++n)
        highest = largest(highest, largest(score[n][2 * half], score[n][2 * half + 1]));
      highest = largest(highest, shuffle_xor(highest, 1));
      highest = largest(highest, shuffle_xor(highest, 2));
      // A row that has seen nothing yet: any finite number does.
      const float from = highest == -infinity() ? 0 : highest * m_factor;
      // Without a higher score exactly 1, also where the compiler fuses the product and the difference.
      const float correction =
          m_highest[m][half] == highest ? 1 : exp2_fast(m_highest[m][half] * m_factor - from);
      m_highest[m][half] = highest;
      float sum = 0;
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < columns; ++n) {
        KFORMER_DEVICE_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[n][i] = exp2_fast(score[n][i] * m_factor - from);
          sum += score[n][i];
        }
      }
      m_sum[m][half] = m_sum[m][half] * correction + sum;
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < features; ++n) {
        result[n][2 * half] *= correction;
        result[n][2 * half + 1] *= correction;
      }
    }
  }

  /// The same, rounded for the product with values.
  template <Half type, int columns, int features>
  KFORMER_DEVICE void pass(int m, float (&score)[columns][4], std::uint32_t (&weight)[columns / 2][4],
                           float (&result)[features][4]) {
    weigh(m, score, result);
    KFORMER_DEVICE_UNROLL
    for (int k = 0; k < columns / 2; ++k) {
      weight[k][0] = pack<type>(score[2 * k][0], score[2 * k][1]);
      weight[k][1] = pack<type>(score[2 * k][2], score[2 * k][3]);
      weight[k][2] = pack<type>(score[2 * k + 1][0], score[2 * k + 1][1]);
      weight[k][3] = pack<type>(score[2 * k + 1][2], score[2 * k + 1][3]);
    }
  }

  /// What follows in the program needs the sums: the compiler finishes the weights before it.
  KFORMER_DEVICE void finish_sums() {
    KFORMER_DEVICE_UNROLL
    for (int m = 0; m < row_tiles; ++m) {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) m_sum[m][half] = opaque(m_sum[m][half]);
    }
  }

  KFORMER_DEVICE RowPart part(int m, int half) const {
    float sum = m_sum[m][half];
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    return {m_highest[m][half] * m_factor, sum};
  }

  KFORMER_DEVICE RowSum finish(int m, int half) const {
    float sum = m_sum[m][half];
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    if (sum == 0) return {0, -infinity()};
    return {1 / sum, m_highest[m][half] * m_factor * ln_2 + natural_log(sum)};
  }

 private:
  const AttentionRules& m_arguments;
  float m_factor;
  float m_highest[row_tiles][2], m_sum[row_tiles][2];
};

}  // namespace kformer::Impl::cuda
