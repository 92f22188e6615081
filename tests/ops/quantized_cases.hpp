// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/quantized.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Quantised matrices of tests.

namespace kformer::Testing {

/// The kinds of activations that a linear map by weights of a format takes.
inline std::vector<Activations> activations_with(QuantizedFormat format) {
  if (format == QuantizedFormat::nf4) return {Activations::full};
  return {Activations::full, Activations::int8};
}

/// A quantised matrix with guard zones.
struct QuantizedWeights {
  QuantizedFormat format;
  std::int64_t rows, cols;
  TestTensor<Exec, std::uint8_t> bytes;

  QuantizedWeights(QuantizedFormat f, std::int64_t r, std::int64_t c)
      : format(f),
        rows(r),
        cols(c),
        bytes({static_cast<std::int64_t>(quantized_bytes(f, r, c))}, Rows::packed) {}

  QuantizedMatrix matrix() const { return output(); }
  QuantizedOutput output() const { return {format, static_cast<std::byte*>(bytes.ref().data), rows, cols}; }
  std::int64_t scale_at() const { return is_ternary(format) ? bytes_per_block(format) - 2 : 0; }

  /// Any bytes for codes; `half(block)` are the bits of the scale, and of the offset, of each block, or of each
  /// float behind a matrix of NF4.
  template <class F>
  QuantizedWeights& random(std::mt19937& generator, F half) {
    if (format == QuantizedFormat::nf4) return random_nf4(generator, half);
    const auto block = static_cast<std::size_t>(bytes_per_block(format));
    const auto offset_bytes = format == QuantizedFormat::q4_1 ? 4u : 2u;
    const auto at = static_cast<std::size_t>(scale_at());
    std::uniform_int_distribution<int> any(0, 255);
    bytes.fill([&](std::size_t i) {
      const std::size_t place = i % block;
      const int code = any(generator);
      if (place < at || place >= at + offset_bytes) return code;
      return static_cast<int>(half(i / block)) >> ((place - at) % 2 * 8) & 255;
    });
    return *this;
  }

  /// Scales of either sign around 0.01, a subnormal one among them.
  QuantizedWeights& random(std::mt19937& generator) {
    return random(generator, [](std::size_t block) {
      constexpr unsigned bits[] = {0x211f, 0x2300, 0xa0aa, 0x0011, 0x24cd};
      return bits[block * 7 % 5];
    });
  }

 private:
  template <class F>
  QuantizedWeights& random_nf4(std::mt19937& generator, F half) {
    const std::size_t blocks = static_cast<std::size_t>(rows * quantized_row_bytes(format, cols));
    std::uniform_int_distribution<int> any(0, 255);
    bytes.fill([&](std::size_t i) {
      const int code = any(generator);
      if (i < blocks) return code;
      f16 number;
      number.bits = static_cast<std::uint16_t>(half((i - blocks) / 4));
      const auto bits = Kokkos::bit_cast<std::uint32_t>(static_cast<float>(number));
      return static_cast<int>(bits >> (i - blocks) % 4 * 8 & 255);
    });
    return *this;
  }
};

/// A matrix of its own bytes, for blocks by hand.
inline QuantizedWeights weights_of_bytes(QuantizedFormat format, std::int64_t rows, std::int64_t cols,
                                         const std::vector<int>& bytes) {
  QuantizedWeights w(format, rows, cols);
  w.bytes.fill([&](std::size_t i) { return bytes.at(i); });
  return w;
}

}  // namespace kformer::Testing
