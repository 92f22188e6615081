// SPDX-License-Identifier: MIT
#include "io/checkpoint/rope_factors.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

/// The factors are computed and stored in float; between the two wavelengths their errors grow by the scale.
constexpr double most_relative_difference = 1e-4;

bool equal(const std::vector<float>& stored, const std::vector<double>& expected) {
  return std::equal(stored.begin(), stored.end(), expected.begin(), expected.end(),
                    [](float a, double b) { return std::abs(a - b) <= most_relative_difference * b; });
}

}  // namespace

std::vector<double> llama3_factors(const RopeScaling& scaling, double rope_theta, std::int64_t head_dim) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  std::vector<double> factors;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(head_dim);
    const double wavelength = 2 * std::numbers::pi * std::pow(rope_theta, exponent);
    const double smooth = (original / wavelength - scaling.low_freq_factor) /
                          (scaling.high_freq_factor - scaling.low_freq_factor);
    const double kept = std::clamp(smooth, 0.0, 1.0);
    factors.push_back(1 / ((1 - kept) / scaling.factor + kept));
  }
  return factors;
}

RopeScaling rope_scaling_of(const std::vector<float>& factors, double rope_theta, std::int64_t head_dim,
                            const std::string& what) {
  RopeScaling scaling;
  if (equal(factors, std::vector<double>(static_cast<std::size_t>(head_dim / 2), 1.0))) return scaling;
  scaling.rope_type = RopeType::llama3;
  for (const double factor : {8.0, 32.0}) {
    scaling.factor = factor;
    if (equal(factors, llama3_factors(scaling, rope_theta, head_dim))) return scaling;
  }
  throw FileError(
      what +
      " are not those of the llama3 rule with factor 8 or 32, low_freq_factor 1, high_freq_factor 4 and "
      "original_max_position_embeddings 8192; other RoPE scalings are not supported");
}

}  // namespace kformer::Impl
