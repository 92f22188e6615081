// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kformer::drivers {

/// Sums over weights w and what they became, v. Added in the order of the rows.
struct TensorErrors {
  std::int64_t weights = 0;  ///< how many
  std::int64_t zeros = 0;    ///< how many v are 0
  double largest = 0;        ///< largest |v − w|
  double error_squares = 0;  ///< sum of (v − w)²
  double from_squares = 0;   ///< sum of w²
  double to_squares = 0;     ///< sum of v²
  double products = 0;       ///< sum of v·w

  TensorErrors& operator+=(const TensorErrors& other) {
    weights += other.weights;
    zeros += other.zeros;
    largest = std::max(largest, other.largest);
    error_squares += other.error_squares;
    from_squares += other.from_squares;
    to_squares += other.to_squares;
    products += other.products;
    return *this;
  }

  /// rms(v − w)/rms(w); NaN where all w are 0.
  double relative_rms() const { return std::sqrt(error_squares / from_squares); }
  /// Of the angle between v and w; NaN where all v or all w are 0.
  double cosine() const { return products / (std::sqrt(from_squares) * std::sqrt(to_squares)); }
  /// Share of the v that are 0.
  double share_of_zeros() const { return static_cast<double>(zeros) / static_cast<double>(weights); }
};

}  // namespace kformer::drivers
