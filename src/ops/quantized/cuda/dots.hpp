// SPDX-License-Identifier: MIT
#pragma once

#include "ops/quantized/cuda/stream.hpp"

/// \file
/// Few rows of x by weights as numbers: a warp has two rows of W, of which it reads every byte once for up to
/// four rows of x. Neighbouring lanes have neighbouring words. The sum of a row of x has the same order and
/// the same roundings whatever the other rows are.

namespace kformer::Impl::cuda {

// Occupancy of QuantizedDotKernel: registers limit it, those of four rows of x most, or shared memory. The kernel is
// designed to be limited by memory, so bytes in flight count, not warps: each warp has two passes of two rows of W
// in flight, 2 to 4 KB.
template <class T, QuantizedFormat format, int rows>
struct QuantizedDotKernel {
  using Layout = BlockLayout<format>;
  using Stream = WeightStream<format>;
  static constexpr int threads = 32 * dot_warps, blocks_per_multiprocessor = 3;
  static constexpr int shared_bytes = Stream::shared_bytes;

  QuantizedDotArguments a;

  KFORMER_DEVICE void operator()() const {
    const DotPlace<rows> place(a);
    if (place.col >= a.out) return;
    const Stream stream(a, place.col, place.warp);
    float sum[dot_cols][rows] = {};
    if constexpr (Layout::table)
      add_table(place, stream, sum);
    else
      add_integers(place, stream, sum);
    add_adapter(place, sum);
    place.template store_sums<T>(
        a, sum, [&](int, float all) { return rounded_product(static_cast<float>(a.scale), all); });
  }

 private:
  using Sums = float[dot_cols][rows];

  KFORMER_DEVICE void add_integers(const DotPlace<rows>& place, const Stream& stream, Sums& sum) const {
    stream.for_each_pass([&](std::int64_t first, int blocks, const SharedAddress(&at)[dot_cols]) {
      for (int i = place.lane; i < blocks * Layout::words; i += 32) {
        const int block = i / Layout::words, word = i % Layout::words;
        IntegerWeights<format> weights[dot_cols];
        KFORMER_DEVICE_UNROLL
        for (int c = 0; c < dot_cols; ++c) {
          const SharedAddress from = at[c] + static_cast<SharedAddress>(block * Layout::bytes);
          weights[c].numbers = block_numbers<format>(from);
          split_codes<format>(load_shared_word(from + static_cast<SharedAddress>(Layout::codes_at + 4 * word)),
                              weights[c].code);
        }
        add_word(place, (first + block) * Layout::weights, word, weights, sum);
      }
    });
  }

  KFORMER_DEVICE void add_table(const DotPlace<rows>& place, const Stream& stream, Sums& sum) const {
    const Nf4Table table = Nf4Table::store(stream.table());
    Nf4Scales scales[dot_cols] = {Nf4Scales(a.weight_end()), Nf4Scales(a.weight_end())};
    stream.for_each_pass([&](std::int64_t first, int blocks, const SharedAddress(&at)[dot_cols]) {
      for (int i = place.lane; i < blocks * Layout::words; i += 32) {
        const int block = i / Layout::words, word = i % Layout::words;
        Nf4Weights weights[dot_cols];
        KFORMER_DEVICE_UNROLL
        for (int c = 0; c < dot_cols; ++c) {
          const SharedAddress from = at[c] + static_cast<SharedAddress>(block * Layout::bytes);
          const std::int64_t row = place.col + c < a.out ? place.col + c : a.out - 1;
          weights[c].table = table;
          weights[c].scale = scales[c].of(load_shared<std::uint8_t>(from), row * a.row_blocks + first + block);
          split_codes<format>(load_shared_word(from + static_cast<SharedAddress>(Layout::codes_at + 4 * word)),
                              weights[c].code);
        }
        add_word(place, (first + block) * Layout::weights, word, weights, sum);
      }
    });
  }

  /// The products of a word of each row of W, in a block whose first weight is in column `column`.
  template <class Weights>
  KFORMER_DEVICE void add_word(const DotPlace<rows>& place, std::int64_t column, int word,
                               const Weights (&weights)[dot_cols], Sums& sum) const {
    KFORMER_DEVICE_UNROLL
    for (int g = 0; g < Layout::groups; ++g) {
      if (!Layout::has(word, g)) continue;
      float x[rows][4];
      KFORMER_DEVICE_UNROLL
      for (int r = 0; r < rows; ++r) load_inputs(place, r, column + Layout::place(word, g), x[r]);
      KFORMER_DEVICE_UNROLL
      for (int c = 0; c < dot_cols; ++c) {
        float w[4];
        weights[c](g, w);
        KFORMER_DEVICE_UNROLL
        for (int r = 0; r < rows; ++r) {
          KFORMER_DEVICE_UNROLL
          for (int i = 0; i < 4; ++i) sum[c][r] = fused_multiply_add(w[i], x[r][i], sum[c][r]);
        }
      }
    }
  }

  /// Four numbers from `column` on, zeros behind the row.
  KFORMER_DEVICE void load_inputs(const DotPlace<rows>& place, int r, std::int64_t column,
                                  float (&x)[4]) const {
    const T* from = place.template row_of<T>(a.x, a, r) + column;
    if (column + 4 <= a.in) return load_numbers<T, 4>(from, x);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = column + i < a.in ? widened(from[i]) : 0;
  }

  KFORMER_DEVICE void add_adapter(const DotPlace<rows>& place, Sums& sum) const {
    for (std::int64_t k = place.lane; k < a.rank; k += 32) {
      KFORMER_DEVICE_UNROLL
      for (int c = 0; c < dot_cols; ++c) {
        if (place.col + c >= a.out) continue;
        const float b = widened(static_cast<const T*>(a.b.data)[(place.col + c) * a.b.stride + k]);
        KFORMER_DEVICE_UNROLL
        for (int r = 0; r < rows; ++r)
          sum[c][r] = fused_multiply_add(b, widened(place.template row_of<T>(a.xa, a, r)[k]), sum[c][r]);
      }
    }
  }
};

}  // namespace kformer::Impl::cuda
