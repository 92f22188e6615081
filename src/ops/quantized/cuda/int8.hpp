// SPDX-License-Identifier: MIT
#pragma once

#include "ops/quantized/cuda/stream.hpp"

/// \file
/// Products of weights and activations of 8 bits, four bytes per instruction, and the activations. Scales and
/// codes are those of ops/quantized/rules.hpp, bit by bit.

namespace kformer::Impl::cuda {

/// Numbers that become codes by one scale.
struct ActivationScale {
  float scale, inverse;

  /// Of numbers whose greatest magnitude this is, infinity if any is infinite or NaN.
  KFORMER_DEVICE explicit ActivationScale(float greatest) : scale(0), inverse(0) {
    if (!(greatest < infinity())) {
      scale = not_a_number();
    } else if (greatest >= 0x1p-100f) {
      scale = greatest / 127;
      inverse = 127 / greatest;
    }
  }
  /// What `greatest` is the maximum of.
  KFORMER_DEVICE static float magnitude(float x) {
    const float size = bits_as_float(float_as_bits(x) & 0x7fffffffu);
    return size < infinity() ? size : infinity();
  }
  KFORMER_DEVICE int code(float x) const {
    return inverse == 0 ? 0 : nearest_integer(rounded_product(x, inverse));
  }
};

/// Codes with a scale for 32 of them: a warp has a group.
template <class T>
struct GroupActivationsKernel {
  static constexpr int warps = 8, threads = 32 * warps, blocks_per_multiprocessor = 4, shared_bytes = 0;

  QuantizedDotArguments a;

  KFORMER_DEVICE void operator()() const {
    const int lane = thread_index() % 32;
    const std::int64_t group = static_cast<std::int64_t>(block_index()) * warps + thread_index() / 32;
    const std::int64_t row = group / a.int8.row_groups, column = group % a.int8.row_groups * 32 + lane;
    if (row >= a.rows) return;
    const T* from = static_cast<const T*>(a.x.data) + row * a.x.stride;
    const float x = column < a.in ? widened(from[column]) : 0;
    const ActivationScale scale(over_warp(ActivationScale::magnitude(x), Largest{}));
    const int code = scale.code(x);
    a.int8.codes[row * a.int8.row_codes + column] = static_cast<std::uint8_t>(code);
    const auto sum = static_cast<int>(over_warp(static_cast<float>(code), Sum{}));
    if (lane == 0) a.int8.numbers[group] = {{float_as_bits(scale.scale), static_cast<std::uint32_t>(sum)}};
  }
};

/// Codes with a scale for a row, which a block has. Sums are not needed.
template <class T>
struct RowActivationsKernel {
  static constexpr int warps = 8, threads = 32 * warps, blocks_per_multiprocessor = 4;
  static constexpr int shared_bytes = 4 * warps;

  QuantizedDotArguments a;

  KFORMER_DEVICE void operator()() const {
    const T* from = static_cast<const T*>(a.x.data) + block_index() * a.x.stride;
    float greatest = 0;
    for (std::int64_t i = thread_index(); i < a.in; i += threads)
      greatest = largest(greatest, ActivationScale::magnitude(widened(from[i])));
    const ActivationScale scale(over_row<warps>(greatest, Largest{}, shared_begin()));
    std::uint8_t* to = a.int8.codes + block_index() * a.int8.row_codes;
    for (std::int64_t i = thread_index(); i < a.int8.row_codes; i += threads)
      to[i] = static_cast<std::uint8_t>(i < a.in ? scale.code(widened(from[i])) : 0);
    if (thread_index() == 0) a.int8.numbers[block_index()] = {{float_as_bits(scale.scale), 0}};
  }
};

/// Few rows of x, as for weights as numbers. A lane has whole blocks of 32 weights, so that their sum is an
/// integer. Of a ternary block lanes have words: sums of integers times a scale are exact in double.

// Occupancy of QuantizedInt8Kernel: as for `QuantizedDotKernel`, what matters is the number of bytes in flight.
// Registers limit it: a lane has the codes of a block of each row of W, and those of a row of x.
template <class T, QuantizedFormat format, int rows>
struct QuantizedInt8Kernel {
  using Layout = BlockLayout<format>;
  using Stream = WeightStream<format>;
  using Total = std::conditional_t<Layout::ternary, double, float>;
  static constexpr int threads = 32 * dot_warps, blocks_per_multiprocessor = 3;
  static constexpr int shared_bytes = Stream::shared_bytes;

  QuantizedDotArguments a;

  KFORMER_DEVICE void operator()() const {
    const DotPlace<rows> place(a);
    if (place.col >= a.out) return;
    Total sum[dot_cols][rows] = {};
    Stream(a, place.col, place.warp)
        .for_each_pass([&](std::int64_t first, int blocks, const SharedAddress(&at)[dot_cols]) {
          if constexpr (Layout::ternary)
            add_words(place, first, blocks, at, sum);
          else
            add_blocks(place, first, blocks, at, sum);
        });
    place.template store_sums<T>(a, sum, [&](int r, Total all) { return scaled(place, r, all); });
  }

 private:
  using Sums = Total[dot_cols][rows];

  KFORMER_DEVICE const std::uint8_t* codes(const DotPlace<rows>& place, int r) const {
    return a.int8.codes + place.valid_row(a, r) * a.int8.row_codes;
  }
  KFORMER_DEVICE Int8Activations::Numbers numbers(const DotPlace<rows>& place, int r,
                                                  std::int64_t group) const {
    return load_words<2>(a.int8.numbers + place.valid_row(a, r) * a.int8.row_groups + group);
  }

  /// Ternary weights have the scale of a row of x at the end.
  KFORMER_DEVICE float scaled(const DotPlace<rows>&, int, float all) const {
    return rounded_product(static_cast<float>(a.scale), all);
  }
  KFORMER_DEVICE float scaled(const DotPlace<rows>& place, int r, double all) const {
    const float of_row = bits_as_float(numbers(place, r, 0).word[0]);
    return static_cast<float>(a.scale * (all * static_cast<double>(of_row)));
  }

  KFORMER_DEVICE void add_blocks(const DotPlace<rows>& place, std::int64_t first, int blocks,
                                 const SharedAddress (&at)[dot_cols], Sums& sum) const {
    const int block = place.lane;
    static_assert(Stream::pass_blocks == 32 && Layout::weights == 32);
    if (block >= blocks) return;
    constexpr int words = Layout::words, groups = Layout::groups;
    BlockNumbers of_weights[dot_cols];
    std::uint32_t w[dot_cols][words][groups];
    KFORMER_DEVICE_UNROLL
    for (int c = 0; c < dot_cols; ++c) {
      const SharedAddress from = at[c] + static_cast<SharedAddress>(block * Layout::bytes);
      of_weights[c] = block_numbers<format>(from);
      KFORMER_DEVICE_UNROLL
      for (int j = 0; j < words; ++j)
        split_codes<format>(load_shared_word(from + static_cast<SharedAddress>(Layout::codes_at + 4 * j)),
                            w[c][j]);
    }
    KFORMER_DEVICE_UNROLL
    for (int r = 0; r < rows; ++r) {
      Chunk x[2];
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half)
        x[half] = load_words<4>(codes(place, r) + (first + block) * 32 + 16 * half);
      const Int8Activations::Numbers of_x = numbers(place, r, first + block);
      KFORMER_DEVICE_UNROLL
      for (int c = 0; c < dot_cols; ++c) {
        const int codes_sum = static_cast<int>(of_x.word[1]);
        // A shift of the codes is larger than what it leaves of their sum: in floats it would cost digits.
        int products = -Layout::shift * codes_sum;
        KFORMER_DEVICE_UNROLL
        for (int j = 0; j < words; ++j) {
          KFORMER_DEVICE_UNROLL
          for (int g = 0; g < groups; ++g) {
            const int place_of_x = groups == 1 ? j : j + 4 * g;
            products = add_byte_products(w[c][j][g], x[place_of_x / 4].word[place_of_x % 4], products);
          }
        }
        const float offsets =
            Layout::has_offset ? rounded_product(of_weights[c].offset, static_cast<float>(codes_sum)) : 0;
        const float both = fused_multiply_add(of_weights[c].scale, static_cast<float>(products), offsets);
        sum[c][r] = fused_multiply_add(bits_as_float(of_x.word[0]), both, sum[c][r]);
      }
    }
  }

  KFORMER_DEVICE void add_words(const DotPlace<rows>& place, std::int64_t first, int blocks,
                                const SharedAddress (&at)[dot_cols], Sums& sum) const {
    for (int i = place.lane; i < blocks * Layout::words; i += 32) {
      const int block = i / Layout::words, word = i % Layout::words;
      float scale[dot_cols];
      std::uint32_t w[dot_cols][Layout::groups];
      int products[dot_cols][rows] = {}, codes_sum[rows] = {};
      KFORMER_DEVICE_UNROLL
      for (int c = 0; c < dot_cols; ++c) {
        const SharedAddress from = at[c] + static_cast<SharedAddress>(block * Layout::bytes);
        scale[c] = block_numbers<format>(from).scale;
        split_codes<format>(load_shared_word(from + static_cast<SharedAddress>(4 * word)), w[c]);
      }
      KFORMER_DEVICE_UNROLL
      for (int g = 0; g < Layout::groups; ++g) {
        if (!Layout::has(word, g)) continue;
        KFORMER_DEVICE_UNROLL
        for (int r = 0; r < rows; ++r) {
          const std::uint32_t x =
              load_words<1>(codes(place, r) + (first + block) * Layout::weights + Layout::place(word, g))
                  .word[0];
          codes_sum[r] = add_byte_products(0x01010101u, x, codes_sum[r]);
          KFORMER_DEVICE_UNROLL
          for (int c = 0; c < dot_cols; ++c) products[c][r] = add_byte_products(w[c][g], x, products[c][r]);
        }
      }
      KFORMER_DEVICE_UNROLL
      for (int c = 0; c < dot_cols; ++c) {
        KFORMER_DEVICE_UNROLL
        for (int r = 0; r < rows; ++r)
          sum[c][r] += static_cast<double>(products[c][r] - codes_sum[r]) * static_cast<double>(scale[c]);
      }
    }
  }
};

}  // namespace kformer::Impl::cuda
