// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/types/quantized_format.hpp"

/// \file
/// Storage of quantised weights, block by block as in GGUF files (ggml, `ggml-common.h`), and NF4. Does not need
/// Kokkos.
///
/// A row is a sequence of whole blocks, rows lie back to back, and numbers of several bytes are little-endian.
/// If the columns do not fill the last block, the rest of it has no meaning. Behind the rows, a matrix of NF4 has
/// numbers that belong to all of it.

namespace kformer {

/// Every format.
inline constexpr QuantizedFormat quantized_formats[] = {QuantizedFormat::q8_0,  QuantizedFormat::q4_0,
                                                        QuantizedFormat::q4_1,  QuantizedFormat::tq2_0,
                                                        QuantizedFormat::tq1_0, QuantizedFormat::nf4};

/// The name, such as `Q8_0`.
constexpr const char* to_string(QuantizedFormat format) { return name_of(format).data(); }

/// The format with this name, in capitals; empty if there is no such format.
constexpr std::optional<QuantizedFormat> quantized_format_named(std::string_view name) {
  for (const QuantizedFormat format : quantized_formats)
    if (name == to_string(format)) return format;
  return std::nullopt;
}

/// Whether all weights are −d, 0 or d.
constexpr bool is_ternary(QuantizedFormat format) {
  return format == QuantizedFormat::tq2_0 || format == QuantizedFormat::tq1_0;
}

/// Whether some rows of a matrix, one below the other, are a matrix by themselves. Those of NF4 are not.
constexpr bool has_separate_rows(QuantizedFormat format) { return format != QuantizedFormat::nf4; }

/// Whether codes are integers that a scale multiplies, possibly with an offset. Those of NF4 are places in a table.
constexpr bool has_integer_codes(QuantizedFormat format) { return format != QuantizedFormat::nf4; }

/// Weights in a block.
constexpr std::int64_t weights_per_block(QuantizedFormat format) {
  return is_ternary(format) ? 256 : format == QuantizedFormat::nf4 ? 64 : 32;
}

/// Bytes of a block.
constexpr std::int64_t bytes_per_block(QuantizedFormat format) {
  constexpr std::int64_t bytes[] = {34, 18, 20, 66, 54, 33};
  return bytes[static_cast<int>(format)];
}

/// Bytes of a row of `cols` weights, its last block whole.
constexpr std::int64_t quantized_row_bytes(QuantizedFormat format, std::int64_t cols) {
  return (cols + weights_per_block(format) - 1) / weights_per_block(format) * bytes_per_block(format);
}

/// Blocks of NF4 that share a nested scale.
inline constexpr std::int64_t nf4_blocks_per_scale = 256;

/// Bytes behind the rows of a matrix of so many blocks: of NF4 four for the offset, and four for each nested scale;
/// else none.
constexpr std::size_t quantized_tail_bytes(QuantizedFormat format, std::size_t blocks) {
  constexpr auto of_scale = static_cast<std::size_t>(nf4_blocks_per_scale);
  if (has_separate_rows(format) || blocks == 0) return 0;
  return 4 * (1 + blocks / of_scale + (blocks % of_scale == 0 ? 0 : 1));
}

/// Bytes of a matrix of `rows` rows, with what is behind them.
constexpr std::size_t quantized_bytes(QuantizedFormat format, std::int64_t rows, std::int64_t cols) {
  const std::size_t of_rows =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(quantized_row_bytes(format, cols));
  return of_rows + quantized_tail_bytes(format, of_rows / static_cast<std::size_t>(bytes_per_block(format)));
}

}  // namespace kformer
