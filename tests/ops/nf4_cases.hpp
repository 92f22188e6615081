// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>
#include <random>

#include "ops/quantized/nf4.hpp"
#include "ops/quantized/reference.hpp"
#include "ops/quantized_cases.hpp"

/// \file
/// Weights for tests of NF4, and what they became.

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

/// What weights are like.
enum class WeightKind { normal, zeros, some_zeros, equal, outliers, subnormal, huge, thresholds };
inline constexpr WeightKind weight_kinds[] = {WeightKind::normal, WeightKind::zeros,     WeightKind::some_zeros,
                                              WeightKind::equal,  WeightKind::outliers,  WeightKind::subnormal,
                                              WeightKind::huge,   WeightKind::thresholds};
inline const char* name_of(WeightKind kind) {
  constexpr const char* names[] = {"normal",   "zeros",     "some zeros", "equal",
                                   "outliers", "subnormal", "huge",       "thresholds"};
  return names[static_cast<int>(kind)];
}

/// A matrix of such weights; blocks of 64 differ in their magnitude.
inline HostTensor<float> weights_of_kind(WeightKind kind, std::int64_t rows, std::int64_t cols,
                                         std::mt19937& generator) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> any(0, 14);
  HostTensor<float> x({rows, cols});
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col) {
      const auto block = static_cast<float>((row * cols + col) / 64 % 7 + 1);
      float& w = x(row, col);
      w = normal(generator) * block;
      if (kind == WeightKind::zeros) w = col % 2 ? -0.0f : 0.0f;
      if (kind == WeightKind::some_zeros && col / 64 % 2 == 0) w = 0;
      if (kind == WeightKind::equal) w = 0.125f;
      if (kind == WeightKind::outliers) w = col % 64 == 7 ? 1000 * block : w * 1e-3f;
      if (kind == WeightKind::subnormal) w *= col / 64 % 2 ? 1e-40f : 3e-39f;
      if (kind == WeightKind::huge) w *= 1e36f;
      if (kind == WeightKind::thresholds) {
        const int code = any(generator);
        const float middle =
            (static_cast<float>(ref::nf4_table[code]) + static_cast<float>(ref::nf4_table[code + 1])) / 2;
        w = col % 64 == 0 ? 1.0f : col % 3 ? middle : std::nextafter(middle, col % 2 ? 2.0f : -2.0f);
      }
    }
  return x;
}

/// The bytes of a matrix, after the instance's work.
inline std::vector<std::uint8_t> bytes_of(const QuantizedWeights& w) {
  Exec().fence("kformer::Testing::nf4");
  const auto values = w.bytes.read<double>().values();
  return {values.begin(), values.end()};
}

/// The weights, after the instance's work.
inline std::vector<double> dequantized(const QuantizedWeights& w) {
  const TestTensor<Exec, float> y({w.rows, w.cols});
  dequantize(Exec(), w.matrix(), y.view<2>());
  Exec().fence("kformer::Testing::nf4");
  return y.read<double>().values();
}

}  // namespace kformer::Testing
