// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/tensor_ref.hpp"
#include "ops/common/simd/rows.hpp"
#include "ops/common/simd_entries.hpp"

/// \file
/// Operands of rank 2 as SIMD kernels take them, and launches over them.

namespace kformer::Impl::host {

/// Without data if the operand is absent.
inline InputRows input_rows(const TensorRef& x) { return {x.data, x.stride[0]}; }

/// `streams` if the launch exceeds the caches; what is written in place is in the caches anyway.
inline OutputRows output_rows(const TensorRef& x, bool streams, std::initializer_list<TensorRef> inputs) {
  for (const TensorRef& input : inputs) streams = streams && input.data != x.data;
  return {x.data, x.stride[0], streams};
}

inline std::int64_t bytes_of(const TensorRef& x) {
  return x.size() * static_cast<std::int64_t>(size_of(x.dtype));
}

/// `f(block)` for blocks of a matrix, in turn to the threads: elementwise work. Rows longer than a piece of
/// work are cut.
template <class Exec, class F>
void for_each_block(const char* label, const Exec& exec, std::int64_t rows, std::int64_t columns, F f) {
  if (columns <= piece_elements) {
    for_each_piece(label, exec, rows, piece_of_rows(columns),
                   [=](std::int64_t first, std::int64_t end) { f(Block{first, end, 0, columns}); });
  } else {
    const std::int64_t parts = ceil_div(columns, piece_elements);
    for_each_piece(label, exec, rows * parts, 1, [=](std::int64_t piece, std::int64_t) {
      const std::int64_t row = piece / parts, first = piece % parts * piece_elements;
      f(Block{row, row + 1, first, std::min(piece_elements, columns - first)});
    });
  }
}

}  // namespace kformer::Impl::host
