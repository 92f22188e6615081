// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/row_access.hpp"
#include "ops/embedding/host/arguments.hpp"

/// \file
/// Rows of a table by their ids, and sums into them. No processor foresees which row comes next, but the ids
/// tell: rows are prefetched.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::EmbeddingBackwardArguments;
using host::EmbeddingClass;
using host::EmbeddingForwardArguments;

/// Rows of `row_bytes` that are prefetched ahead of the current one.
KFORMER_SIMD_INLINE std::int64_t rows_requested_ahead(std::int64_t row_bytes) {
  constexpr std::int64_t bytes_ahead = 8192;
  return larger(1, bytes_ahead / larger(1, row_bytes));
}

template <class T>
void embedding_forward(const EmbeddingForwardArguments& p, std::int64_t first_row, std::int64_t end) {
  using C = Arithmetic<T>;
  constexpr std::int64_t n = vector_bytes / sizeof(T);
  const auto is_valid = [&](std::int32_t id) { return id >= 0 && id < p.vocabulary; };
  const std::int64_t ahead = rows_requested_ahead(p.hidden * static_cast<std::int64_t>(sizeof(T)));
  for (std::int64_t row = first_row; row < end; ++row) {
    const std::int32_t id = p.ids[row], later = p.ids[smaller(row + ahead, p.rows - 1)];
    const RowWriter<T> y(p.y, row);
    const T *from = row_of<T>(p.weight, is_valid(id) ? id : 0),
            *next = row_of<T>(p.weight, is_valid(later) ? later : 0);
    for (std::int64_t i = 0; i < p.hidden; i += n) __builtin_prefetch(next + i, 0, 2);
    if (is_valid(id))
      y.copy(from, p.hidden);
    else
      for_each_vector<C>(p.hidden, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
        y.store(i, splat(Infinity<C>::value) * splat(C(0)), part);
      });
  }
  end_streams();
}

/// A row of the gradient and where it belongs.
struct EmbeddingRow {
  std::int64_t row, id;
};

/// Adds rows, in their order.
template <class T>
KFORMER_SIMD_INLINE void add_rows(const EmbeddingBackwardArguments& p, const EmbeddingClass& mine,
                                  const EmbeddingRow* rows, std::int64_t count) {
  using C = Arithmetic<T>;
  const std::int64_t ahead = rows_requested_ahead(mine.columns * static_cast<std::int64_t>(sizeof(C)));
  const auto from_of = [&](const EmbeddingRow& r) { return row_of<T>(p.dy, r.row) + mine.first_column; };
  const auto to_of = [&](const EmbeddingRow& r) {
    return static_cast<C*>(p.dweight) + r.id * p.dweight_stride + mine.first_column;
  };
  for (std::int64_t k = 0; k < count; ++k) {
    const EmbeddingRow& later = rows[smaller(k + ahead, count - 1)];
    const T *from = from_of(rows[k]), *next_from = from_of(later);
    C *to = to_of(rows[k]), *next_to = to_of(later);
    for_each_vector<C>(mine.columns, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
      __builtin_prefetch(next_from + i, 0, 2);
      __builtin_prefetch(next_to + i, 1, 2);
      part.store(to + i, part.load(to + i) + part.load(from + i));
    });
  }
}

/// Classes share no element, and each element is summed in the order of the rows: how many classes there are
/// cannot be seen in the result.
template <class T>
void embedding_backward(const EmbeddingBackwardArguments& p, const EmbeddingClass& mine) {
  constexpr std::int64_t capacity = 512;
  EmbeddingRow found[capacity];
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const std::int64_t id = p.ids[row];
    found[count] = {row, id};
    count += (id & (p.classes - 1)) == mine.index && id >= 0 && id < p.vocabulary;
    if (count < capacity) continue;
    add_rows<T>(p, mine, found, count);
    count = 0;
  }
  add_rows<T>(p, mine, found, count);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
