// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

/// \file
/// Storage of quantised weights, block by block as GGUF files have them (ggml, `ggml-common.h`). Free of
/// Kokkos.
///
/// A row is a sequence of whole blocks, rows lie back to back, and numbers of several bytes are little-endian.
/// Where the columns do not fill the last block, what stands in the rest of it has no meaning.

namespace kformer {

/// How blocks of weights are stored; `d` and `m` are binary16, `q` integers.
///
/// | format | weights | bytes | a block | weight |
/// |---|---|---|---|---|
/// | q8_0 | 32 | 34 | d, 32 int8 | d·q |
/// | q4_0 | 32 | 18 | d, 16 bytes: weights 0…15 in the low, 16…31 in the high four bits | d·(q − 8) |
/// | q4_1 | 32 | 20 | d, m, 16 bytes in the same order | d·q + m |
/// | tq2_0 | 256 | 66 | 64 bytes, d | d·(q − 1) |
/// | tq1_0 | 256 | 54 | 48 bytes, 4 bytes, d | d·(q − 1) |
///
/// tq2_0 keeps weight `128·h + 32·n + k` in bits 2n, 2n+1 of byte `32·h + k`.
/// tq1_0 keeps five base-3 digits per byte, the first one most significant, as `⌈256·value/243⌉`, so that digit
/// n is the integer part of three times the fraction of `byte·3ⁿ/256`. Weight `32·n + k` below 160 is digit n
/// of byte k, weight `160 + 16·n + k` below 240 is digit n of byte 32 + k, and weight `240 + 4·n + k` is digit
/// n of byte 48 + k, whose last digit is 0.
enum class QuantizedFormat { q8_0, q4_0, q4_1, tq2_0, tq1_0 };

/// Every format.
inline constexpr QuantizedFormat quantized_formats[] = {QuantizedFormat::q8_0, QuantizedFormat::q4_0,
                                                        QuantizedFormat::q4_1, QuantizedFormat::tq2_0,
                                                        QuantizedFormat::tq1_0};

/// The name in GGUF files, such as `Q8_0`.
constexpr const char* to_string(QuantizedFormat format) {
  constexpr const char* names[] = {"Q8_0", "Q4_0", "Q4_1", "TQ2_0", "TQ1_0"};
  return names[static_cast<int>(format)];
}

/// The format with this name, in capitals as GGUF files have it; none if there is no such format.
constexpr std::optional<QuantizedFormat> quantized_format_named(std::string_view name) {
  for (const QuantizedFormat format : quantized_formats)
    if (name == to_string(format)) return format;
  return std::nullopt;
}

/// Whether all weights are −d, 0 or d.
constexpr bool is_ternary(QuantizedFormat format) {
  return format == QuantizedFormat::tq2_0 || format == QuantizedFormat::tq1_0;
}

/// Weights in a block.
constexpr std::int64_t weights_per_block(QuantizedFormat format) { return is_ternary(format) ? 256 : 32; }

/// Bytes of a block.
constexpr std::int64_t bytes_per_block(QuantizedFormat format) {
  constexpr std::int64_t bytes[] = {34, 18, 20, 66, 54};
  return bytes[static_cast<int>(format)];
}

/// Bytes of a row of `cols` weights, its last block whole.
constexpr std::int64_t quantized_row_bytes(QuantizedFormat format, std::int64_t cols) {
  return (cols + weights_per_block(format) - 1) / weights_per_block(format) * bytes_per_block(format);
}

/// Bytes of a matrix of `rows` rows.
constexpr std::size_t quantized_bytes(QuantizedFormat format, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(quantized_row_bytes(format, cols));
}

}  // namespace kformer
