// SPDX-License-Identifier: MIT
#pragma once

#include "ops/rms_norm/cuda/arguments.hpp"

/// \file
/// RMSNorm forward: a row is read once and stays in registers between the sum of its squares and its scaling.

namespace kformer::Impl::cuda {

// Occupancy of RmsNormForwardKernel: registers limit it to 1024 threads where a thread keeps four chunks of
// a row between the sum of squares and its scaling. So memory is read once, and 64 KB of a multiprocessor
// are in flight. A multiprocessor's share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36 KB per
// microsecond, and a latency is shorter.
template <class T, class Shape, bool fused>
struct RmsNormForwardKernel {
  static constexpr int threads = Shape::threads, blocks_per_multiprocessor = 1024 / threads;
  static constexpr int n = per_chunk<T>;
  /// A set of slots per sum over a row.
  static constexpr int slot_bytes = static_cast<int>(sizeof(ExactSum)) * Shape::warps;
  static constexpr int shared_bytes = Shape::warps > 1 ? 3 * slot_bytes : 0;

  RmsNormForwardArguments a;
  std::int64_t rows;

  KFORMER_DEVICE void operator()() const {
    const std::int64_t row = static_cast<std::int64_t>(block_index()) * Shape::rows + Shape::row();
    if (row >= rows) return;
    const std::int64_t chunks = a.hidden / n;
    Chunk x[Shape::chunks];
    KFORMER_DEVICE_UNROLL
    for (int j = 0; j < Shape::chunks; ++j)
      x[j] = Shape::chunk(j) < chunks ? load(row, Shape::chunk(j)) : Chunk{};
    const Scale scale = scale_of(x);
    if (Shape::chunk(0) == 0) static_cast<float*>(a.rstd)[row] = scale.power * scale.rest;
    KFORMER_DEVICE_UNROLL
    for (int j = 0; j < Shape::chunks; ++j)
      if (Shape::chunk(j) < chunks) store(row, Shape::chunk(j), x[j], scale);
  }

 private:
  /// 1 / √(mean square + eps) = power · rest.
  struct Scale {
    float power, rest;
  };

  /// What is normalised: x, or the sum as it is stored.
  KFORMER_DEVICE Chunk load(std::int64_t row, int chunk) const {
    const Chunk x = load_row_chunk<T>(a.x, row, chunk);
    if constexpr (!fused) return x;
    float sum[n], residual[n];
    widen<T>(x, sum);
    widen<T>(load_row_chunk<T>(a.residual, row, chunk), residual);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) sum[i] += residual[i];
    const Chunk stored = narrowed<T>(sum);
    store_row_chunk<T>(a.sum, row, chunk, stored);
    return stored;
  }

  template <class Combine, class F>
  KFORMER_DEVICE static float over_elements(const Chunk (&x)[Shape::chunks], Combine combine, F f) {
    float result = 0;
    KFORMER_DEVICE_UNROLL
    for (int j = 0; j < Shape::chunks; ++j) {
      float value[n];
      widen<T>(x[j], value);
      KFORMER_DEVICE_UNROLL
      for (int i = 0; i < n; ++i) result = combine(result, f(value[i]));
    }
    return result;
  }
  KFORMER_DEVICE static SharedAddress slots(int set) {
    return shared_begin() + static_cast<SharedAddress>(set * slot_bytes);
  }
  KFORMER_DEVICE static ExactSum sum_of_squares(const Chunk (&x)[Shape::chunks], float power, int set) {
    const float mine =
        over_elements(x, Sum{}, [power](float value) { return value * power * (value * power); });
    return over_row<Shape::warps>(ExactSum{mine, 0}, Sum{}, slots(set));
  }

  /// A row whose squares leave the range of float is scaled by a power of two; a row with infinities or NaN has
  /// the result that it has.
  KFORMER_DEVICE Scale scale_of(const Chunk (&x)[Shape::chunks]) const {
    const float eps = static_cast<float>(a.eps), count = static_cast<float>(a.hidden);
    float power = 1;
    ExactSum squares = sum_of_squares(x, power, 0);
    const float mean = squares.sum / count + eps;
    if (mean < smallest_mean_square || mean > largest_float) {
      const float greatest = over_row<Shape::warps>(
          over_elements(x, Largest{}, [](float value) { return largest(value, -value); }), Largest{}, slots(1));
      const float most = largest(largest(greatest, square_root(eps)), smallest_normal);
      if (most <= largest_float) {
        power = 1 / bits_as_float(float_as_bits(most) & 0x7f800000u);
        squares = sum_of_squares(x, power, 2);
      }
    }
    return {power, inverse_root_of_mean(squares, count, eps * power * power)};
  }

  /// 1 / √(squares / count + eps), rounded about once: a Newton step corrects the errors of the
  /// intermediate roundings.
  KFORMER_DEVICE static float inverse_root_of_mean(const ExactSum& squares, float count, float eps) {
    const float quotient = squares.sum / count, mean = quotient + eps, root = 1 / square_root(mean);
    if (!(mean > 0 && mean <= largest_float)) return root;
    const bool is_small = eps < quotient;
    const float lost = (is_small ? eps : quotient) - (mean - (is_small ? quotient : eps)) +
                       (fused_multiply_add(-quotient, count, squares.sum) + squares.lost) / count;
    const float product = mean * root, product_lost = fused_multiply_add(mean, root, -product);
    const float error = fused_multiply_add(-product, root, 1) - (product_lost + lost * root) * root;
    return fused_multiply_add(root / 2, error, root);
  }

  KFORMER_DEVICE void store(std::int64_t row, int chunk, const Chunk& x, const Scale& scale) const {
    float value[n], weight[n];
    widen<T>(x, value);
    widen<T>(load_row_chunk<T>({a.weight, 0}, 0, chunk), weight);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) value[i] = value[i] * scale.power * scale.rest * weight[i];
    store_row_chunk<T>(a.y, row, chunk, narrowed<T>(value));
  }

  /// The mean square from which on squares that underflow do not count.
  static constexpr float smallest_mean_square = 0x1p-100f;
  static constexpr float smallest_normal = 0x1p-126f, largest_float = 0x1.fffffep127f;
};

}  // namespace kformer::Impl::cuda
