// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kformer/ops/quantized.hpp"
#include "ops/quantized/nf4.hpp"

/// \file
/// Blocks of quantised weights, byte by byte, for every backend: what the formats mean, not how to be fast.

namespace kformer::Impl {

/// Calls `f` with the format as a constant.
template <class F>
decltype(auto) with_format(QuantizedFormat format, F&& f) {
  using enum QuantizedFormat;
  switch (format) {
    case q8_0:
      return f(std::integral_constant<QuantizedFormat, q8_0>{});
    case q4_0:
      return f(std::integral_constant<QuantizedFormat, q4_0>{});
    case q4_1:
      return f(std::integral_constant<QuantizedFormat, q4_1>{});
    case tq2_0:
      return f(std::integral_constant<QuantizedFormat, tq2_0>{});
    case nf4:
      return f(std::integral_constant<QuantizedFormat, nf4>{});
    default:
      return f(std::integral_constant<QuantizedFormat, tq1_0>{});
  }
}

/// One block: its numbers and codes. A weight is `scale·code + offset`; that of NF4 has a specialisation below.
template <QuantizedFormat format>
struct QuantizedBlock {
  static constexpr int weights = static_cast<int>(weights_per_block(format));
  static constexpr int bytes = static_cast<int>(bytes_per_block(format));
  static constexpr bool ternary = is_ternary(format);
  static constexpr bool has_offset = format == QuantizedFormat::q4_1;
  /// Bytes before the scale and before the codes.
  static constexpr int scale_at = ternary ? bytes - 2 : 0, codes_at = ternary ? 0 : has_offset ? 4 : 2;

  KOKKOS_FUNCTION static float half(const std::uint8_t* from) {
    f16 value;
    value.bits = static_cast<std::uint16_t>(from[0] | from[1] << 8);
    return static_cast<float>(value);
  }
  KOKKOS_FUNCTION static void store_half(std::uint8_t* to, float value) {
    const f16 half(value);
    to[0] = static_cast<std::uint8_t>(half.bits & 0xff);
    to[1] = static_cast<std::uint8_t>(half.bits >> 8);
  }

  KOKKOS_FUNCTION static float scale(const std::uint8_t* block) { return half(block + scale_at); }
  KOKKOS_FUNCTION static float offset(const std::uint8_t* block) {
    if constexpr (has_offset)
      return half(block + 2);
    else
      return 0;
  }

  /// The integer that `scale` multiplies.
  KOKKOS_FUNCTION static int code(const std::uint8_t* block, int i) {
    const std::uint8_t* q = block + codes_at;
    if constexpr (format == QuantizedFormat::q8_0) {
      return static_cast<std::int8_t>(q[i]);
    } else if constexpr (format == QuantizedFormat::tq2_0) {
      return (q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) - 1;
    } else if constexpr (format == QuantizedFormat::tq1_0) {
      const Digit d = digit(i);
      const auto fraction = static_cast<std::uint8_t>(q[d.byte] * power_of_3(d.place));
      return (fraction * 3 >> 8) - 1;
    } else {
      const int nibble = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
      return format == QuantizedFormat::q4_0 ? nibble - 8 : nibble;
    }
  }

  /// Writes a block of these codes, each as `code` returns it; `offset` only where the format has one.
  KOKKOS_FUNCTION static void store(std::uint8_t* block, const int* codes, float scale, float offset) {
    for (int i = 0; i < bytes; ++i) block[i] = 0;
    store_half(block + scale_at, scale);
    if constexpr (has_offset) store_half(block + 2, offset);
    std::uint8_t* q = block + codes_at;
    const auto add = [](std::uint8_t& to, int bits) { to = static_cast<std::uint8_t>(to | bits); };
    if constexpr (format == QuantizedFormat::tq1_0) {
      int digits[bytes] = {};
      for (int i = 0; i < weights; ++i) {
        const Digit d = digit(i);
        digits[d.byte] += (codes[i] + 1) * power_of_3(4 - d.place);
      }
      for (int i = 0; i < scale_at; ++i) q[i] = static_cast<std::uint8_t>((digits[i] * 256 + 242) / 243);
    } else {
      for (int i = 0; i < weights; ++i) {
        if constexpr (format == QuantizedFormat::q8_0)
          q[i] = static_cast<std::uint8_t>(codes[i]);
        else if constexpr (format == QuantizedFormat::tq2_0)
          add(q[i / 128 * 32 + i % 32], (codes[i] + 1) << i % 128 / 32 * 2);
        else
          add(q[i % 16], (format == QuantizedFormat::q4_0 ? codes[i] + 8 : codes[i]) << i / 16 * 4);
      }
    }
  }

 private:
  /// Where tq1_0 keeps a weight: the byte, and the place of the base-3 digit in it.
  struct Digit {
    int byte, place;
  };
  KOKKOS_FUNCTION static Digit digit(int i) {
    if (i < 160) return {i % 32, i / 32};
    if (i < 240) return {32 + (i - 160) % 16, (i - 160) / 16};
    return {48 + (i - 240) % 4, (i - 240) / 4};
  }
  KOKKOS_FUNCTION static int power_of_3(int exponent) {
    int power = 1;
    for (int i = 0; i < exponent; ++i) power *= 3;
    return power;
  }
};

/// A block of NF4. Its weights are `s·v(code)`, and `s` takes more than the block.
template <>
struct QuantizedBlock<QuantizedFormat::nf4> {
  static constexpr int weights = static_cast<int>(weights_per_block(QuantizedFormat::nf4));
  static constexpr int bytes = static_cast<int>(bytes_per_block(QuantizedFormat::nf4));
  static constexpr bool ternary = false;

  KOKKOS_FUNCTION static int code(const std::uint8_t* block, int i) {
    return i % 2 ? block[1 + i / 2] & 15 : block[1 + i / 2] >> 4;
  }
};

/// The weights of a block in the type of arithmetic.
template <QuantizedFormat format, class C>
struct BlockWeights {
  const std::uint8_t* block;
  C scale, offset;

  /// Weight number i.
  KOKKOS_FUNCTION C operator()(int i) const {
    const int code = QuantizedBlock<format>::code(block, i);
    if constexpr (format == QuantizedFormat::nf4)
      return scale * static_cast<C>(nf4_value(code));
    else
      return scale * static_cast<C>(code) + offset;
  }
};

/// The blocks of a matrix.
template <QuantizedFormat format>
struct MatrixBlocks {
  using Block = QuantizedBlock<format>;
  const std::uint8_t* data;
  std::int64_t row_bytes;
  const std::uint8_t* tail;  ///< behind the rows

  explicit MatrixBlocks(const QuantizedMatrix& matrix)
      : data(reinterpret_cast<const std::uint8_t*>(matrix.data)),
        row_bytes(quantized_row_bytes(format, matrix.cols)),
        tail(matrix.data ? data + matrix.rows * row_bytes : nullptr) {}

  KOKKOS_FUNCTION const std::uint8_t* block(std::int64_t row, std::int64_t number) const {
    return data + row * row_bytes + number * Block::bytes;
  }
  /// Those of block `number` of a row.
  template <class C>
  KOKKOS_FUNCTION BlockWeights<format, C> weights(std::int64_t row, std::int64_t number) const {
    const std::uint8_t* at = block(row, number);
    if constexpr (format == QuantizedFormat::nf4)
      return {at, static_cast<C>(nf4_scale(*at, tail, row * (row_bytes / Block::bytes) + number)), C(0)};
    else
      return {at, static_cast<C>(Block::scale(at)), static_cast<C>(Block::offset(at))};
  }
  template <class C>
  KOKKOS_FUNCTION C weight(std::int64_t row, std::int64_t col) const {
    return weights<C>(row, col / Block::weights)(static_cast<int>(col % Block::weights));
  }
};

}  // namespace kformer::Impl
