// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

/// \file
/// The two orders of the rows of q and k: RoPE pairs feature i of a head with feature i + head_dim/2 (half-split, as in
/// published checkpoints), or features (0,1), (2,3), … (interleaved, as in GGUF files of architecture llama).

namespace kformer::Impl {

/// The row of an interleaved head that is row `row` of a half-split one.
inline std::size_t interleaved_row(std::size_t row, std::size_t head_dim) {
  const std::size_t half = head_dim / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

/// Interleaved rows in half-split order.
/// \param rows  a multiple of 2 · heads
inline std::vector<std::byte> half_split_rows(std::span<const std::byte> bytes, std::size_t rows,
                                              std::size_t heads) {
  const std::size_t row_bytes = bytes.size() / rows, head_dim = rows / heads;
  std::vector<std::byte> reordered(bytes.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t from = row - row % head_dim + interleaved_row(row % head_dim, head_dim);
    std::memcpy(reordered.data() + row * row_bytes, bytes.data() + from * row_bytes, row_bytes);
  }
  return reordered;
}

}  // namespace kformer::Impl
