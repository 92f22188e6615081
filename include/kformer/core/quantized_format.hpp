// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/types/quantized_format.hpp"

/// \file
/// Storage of quantised weights, block by block as in GGUF files (ggml, `ggml-common.h`). Does not need
/// Kokkos.
///
/// A row is a sequence of whole blocks, rows lie back to back, and numbers of several bytes are little-endian.
/// If the columns do not fill the last block, the rest of it has no meaning.

namespace kformer {

/// Every format.
inline constexpr QuantizedFormat quantized_formats[] = {QuantizedFormat::q8_0, QuantizedFormat::q4_0,
                                                        QuantizedFormat::q4_1, QuantizedFormat::tq2_0,
                                                        QuantizedFormat::tq1_0};

/// The name in GGUF files, such as `Q8_0`.
constexpr const char* to_string(QuantizedFormat format) { return name_of(format).data(); }

/// The format with this name, in capitals as in GGUF files; empty if there is no such format.
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
