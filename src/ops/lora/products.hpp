// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "kformer/core/tensor_parts.hpp"
#include "kformer/ops/lora.hpp"
#include "ops/linear/product.hpp"

/// \file
/// The linear map with adapters as products: those of low rank, then those that read their results.

namespace kformer::Impl {

/// The products of a problem. Those of the second kind have the results of the first as factors of further terms.
template <class T>
struct LoraProducts {
  std::array<MatrixProduct<T, T>, most_lora_parts> low;
  std::array<MatrixProduct<T, T>, 2 * most_lora_parts + 1> full;  // columns of the parts and those between them
  std::size_t low_count = 0, full_count = 0;
  std::int64_t rows = 0;  // of all
};

/// Columns [first, first + count) of the linear map alone.
inline LinearForward columns_of(const LoraForward& p, std::int64_t first, std::int64_t count) {
  const auto part = [&](const TensorRef& t) { return t.present() ? columns_of(t, first, count) : t; };
  return {p.x,          rows_of(p.weight, first, count),
          part(p.bias), part(p.residual),
          part(p.y),    {.batch_invariant = p.options.batch_invariant}};
}

/// The products with rows of `a`: one for neighbours of the same scale, which is the rule. It reads x once for them.
template <class T>
void add_low_products(const LoraForward& p, LoraProducts<T>& all) {
  std::int64_t first = 0, count = 0;
  for (const LoraFactor& part : p.parts) {
    count += part.rank();
    const LoraFactor* next = &part + 1;
    if (next != p.parts.end() && next->scale == part.scale) continue;
    all.low[all.low_count++] =
        product<T>(LinearForward{p.x,
                                 rows_of(p.a, first, count),
                                 {},
                                 {},
                                 columns_of(p.xa, first, count),
                                 {.scale = part.scale, .batch_invariant = p.options.batch_invariant}});
    first += count, count = 0;
  }
}

template <class T>
LoraProducts<T> lora_products(const LoraForward& p) {
  LoraProducts<T> all{};
  all.rows = p.x.extent[0];
  add_low_products(p, all);
  std::int64_t column = 0, row = 0;
  const auto add_columns = [&](std::int64_t first, std::int64_t count) {
    if (count > 0) all.full[all.full_count++] = product<T>(columns_of(p, first, count));
  };
  for (const LoraFactor& part : p.parts) {
    add_columns(column, part.column - column);
    add_columns(part.column, part.columns());
    column = part.column + part.columns();
    const TensorRef xa = columns_of(p.xa, row, part.rank());
    row += part.rank();
    if (part.columns() == 0) continue;
    MatrixProduct<T, T>& full = all.full[all.full_count - 1];
    full.more_inner = part.rank();
    full.more_left = Batch<T>(xa).along();
    full.more_right = Batch<T>(part.b).along();
  }
  add_columns(column, p.weight.extent[0] - column);
  return all;
}

template <class T>
LoraProducts<T> lora_products(const LoraBackwardInput& p) {
  LoraProducts<T> all{};
  all.rows = p.dy.extent[0];
  std::int64_t row = 0;
  for (const LoraFactor& part : p.parts) {
    all.low[all.low_count++] = product<T>(LinearBackwardInput{part.b,
                                                              columns_of(p.dy, part.column, part.columns()),
                                                              columns_of(p.dxa, row, part.rank()),
                                                              {part.scale}});
    row += part.rank();
  }
  MatrixProduct<T, T>& full = all.full[all.full_count++];
  full = product<T>(LinearBackwardInput{p.weight, p.dy, p.dx});
  if (p.addend.present()) add(full, Batch<T>(p.addend));
  full.more_inner = row;
  full.more_left = Batch<T>(p.dxa).along();
  full.more_right = Batch<T>(p.a).across();
  return all;
}

inline DType storage_type(const LoraForward& p) { return p.x.dtype; }
inline DType storage_type(const LoraBackwardInput& p) { return p.dy.dtype; }

/// Calls `f` with the products of `p` in its storage type.
template <class P, class F>
void with_lora_products(const P& p, F&& f) {
  dispatch_dtype(storage_type(p), [&]<class T>(std::type_identity<T>) { f(lora_products<T>(p)); });
}

}  // namespace kformer::Impl
