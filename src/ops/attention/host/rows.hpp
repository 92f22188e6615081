// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/arguments.hpp"
#include "ops/common/simd/product.hpp"
#include "ops/common/simd/scratch.hpp"
#include "ops/common/simd/storage.hpp"

/// \file
/// The rows of a tile: where they are, what they see, and how they become panels.
///
/// A panel holds up to three vectors of rows as lanes, feature by feature: `panel[d · lanes + row]`.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::Arguments;
using host::GradientArguments;
using host::HeadArray;
using host::RowRange;
using host::Sequence;

/// One row of a tile.
struct Row {
  std::int64_t query, head;  // of its sequence; of the problem
  std::int64_t position;     // among the keys of its sequence
  std::int64_t first, end;   // the keys it sees by position: first ≤ j < end
};

KFORMER_SIMD_INLINE Row make_row(const Arguments& p, const Sequence& s, const RowRange& range, std::int64_t r) {
  Row row;
  row.query = (range.begin + r) / p.group;
  row.head = range.kv_head * p.group + (range.begin + r) % p.group;
  row.position = row.query + s.kv_len - s.q_len;
  row.first = p.window > 0 ? larger(0, row.position - p.window + 1) : 0;
  row.end = s.kv_len;
  if (p.causal) row.end = smaller(row.end, row.position + 1);
  if (p.window > 0) row.end = smaller(row.end, row.position + p.window);
  row.end = larger(0, row.end);
  return row;
}

/// Leaves of the keys that a row sees by position those that the functor says.
inline void narrow(const Arguments& p, const Sequence& s, Row& row) {
  if (!p.functor || !p.functor->keys) return;
  const std::int64_t token = s.q_begin + row.query;
  const KeyRange own = p.functor->keys(p.functor->functor, {s.batch, row.head, token, token + 1});
  row.first = larger(row.first, larger(own.first, s.kv_begin) - s.kv_begin);
  row.end = smaller(row.end, smaller(own.end, s.kv_begin + s.kv_len) - s.kv_begin);
}

/// Whether the functor hides `keys` keys of a sequence, from `first_key`, from all queries `first ≤ i ≤ last`.
inline bool functor_hides(const Arguments& p, const Sequence& s, std::int64_t kv_head, std::int64_t first,
                          std::int64_t last, std::int64_t first_key, int keys) {
  if (!p.functor || !p.functor->keys) return false;
  for (std::int64_t h = kv_head * p.group; h < (kv_head + 1) * p.group; ++h) {
    const KeyRange own =
        p.functor->keys(p.functor->functor, {s.batch, h, s.q_begin + first, s.q_begin + last + 1});
    if (own.first < s.kv_begin + first_key + keys && own.end > s.kv_begin + first_key && own.first < own.end)
      return false;
  }
  return true;
}

template <class T>
KFORMER_SIMD_INLINE T* row_data(const HeadArray& x, const Sequence& s, const Row& row) {
  return static_cast<T*>(x.data) + s.batch * x.batch_stride + (s.q_begin + row.query) * x.token_stride +
         row.head * x.head_stride;
}

template <class T>
KFORMER_SIMD_INLINE T* key_data(const HeadArray& x, const Sequence& s, std::int64_t kv_head, std::int64_t key) {
  return static_cast<T*>(x.data) + s.batch * x.batch_stride + (s.kv_begin + key) * x.token_stride +
         kv_head * x.head_stride;
}

/// Keys or values [first, first + count) of one head, row by row with leading dimension `ld`.
template <class T, class C = Arithmetic<T>>
void load_keys(const HeadArray& x, const Sequence& s, std::int64_t kv_head, std::int64_t first, int count,
               int dim, C* to, std::int64_t ld) {
  for (int j = 0; j < count; ++j) load_row(key_data<const T>(x, s, kv_head, first + j), dim, to + j * ld);
}

/// Prefetches `count` numbers that will be loaded soon.
template <class T>
KFORMER_SIMD_INLINE void prefetch(const T* from, std::int64_t count) {
  const char* bytes = reinterpret_cast<const char*>(from);
  for (std::int64_t at = 0; at < count * static_cast<std::int64_t>(sizeof(T)); at += 64)
    __builtin_prefetch(bytes + at, 0, 2);
}

/// A row of a scratch tile: a cache line more than needed keeps rows out of each other's cache sets.
template <class C>
constexpr std::int64_t row_stride(int dim) {
  return padded<C>(dim) + 64 / static_cast<int>(sizeof(C));
}

/// Most rows in a panel.
template <class C>
inline constexpr int panel_lanes = block_vectors * width<C>;

/// `panel[d · lanes + i] = rows[i][d]` for `i < count`, 0 for the other lanes; `rows` have leading
/// dimension `ld` and are padded to whole vectors, as is the panel.
template <class C>
void make_panel(const C* rows, std::int64_t ld, int count, int lanes, int dim, C* panel) {
  constexpr int W = width<C>;
  for (int i0 = 0; i0 < lanes; i0 += W)
    for (int d0 = 0; d0 < dim; d0 += W) {
      Vector<C> x[W];
      KFORMER_SIMD_UNROLL
      for (int i = 0; i < W; ++i) x[i] = i0 + i < count ? load(rows + (i0 + i) * ld + d0) : Vector<C>{};
      transpose<C>(x);
      KFORMER_SIMD_UNROLL
      for (int i = 0; i < W; ++i) store(panel + (d0 + i) * lanes + i0, x[i]);
    }
}

/// The panel of products that take operands of T. Pairs are made of neighbouring features first, in `paired`,
/// which has the stride of the rows and may be the rows themselves.
template <class T, class C = Arithmetic<T>>
void make_operand_panel(const C* rows, std::int64_t ld, int count, int lanes, int dim, C* paired,
                        Operand<T>* panel) {
  if constexpr (uses_pairs<T>) {
    for (int i = 0; i < count; ++i) pair_up(rows + i * ld, dim, reinterpret_cast<Pair*>(paired + i * ld));
    make_panel<C>(paired, ld, count, lanes, operands<T>(dim), reinterpret_cast<C*>(panel));
  } else {
    make_panel<C>(rows, ld, count, lanes, dim, panel);
  }
}

/// The other way: `rows[i][d] = panel[d · lanes + i] · factor[i]`.
template <class C>
void unmake_panel(const C* panel, int lanes, int dim, const C* factor, C* rows, std::int64_t ld) {
  constexpr int W = width<C>;
  for (int i0 = 0; i0 < lanes; i0 += W)
    for (int d0 = 0; d0 < dim; d0 += W) {
      Vector<C> x[W];
      KFORMER_SIMD_UNROLL
      for (int i = 0; i < W; ++i) x[i] = load(panel + (d0 + i) * lanes + i0) * load(factor + i0);
      transpose<C>(x);
      KFORMER_SIMD_UNROLL
      for (int i = 0; i < W; ++i) store(rows + (i0 + i) * ld + d0, x[i]);
    }
}

/// Calls `f` with the number of vectors in `lanes` as its template parameter.
template <class C, class F>
KFORMER_SIMD_INLINE void by_vectors(int lanes, F f) {
  static_assert(block_vectors == 3);
  if (lanes == 3 * width<C>)
    f.template operator()<3>();
  else if (lanes == 2 * width<C>)
    f.template operator()<2>();
  else
    f.template operator()<1>();
}

/// The sink of a head.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE C sink_of(const Arguments& p, std::int64_t head) {
  C x[width<C>];
  load_row(static_cast<const T*>(p.sinks) + head, 1, x);
  return x[0];
}

/// Of `keys` keys, those that a product along `seen` of them reads: whole pairs.
template <class T>
int keys_read(int seen, int keys) {
  return static_cast<int>(smaller(keys, operands<T>(seen) * per_operand<T>));
}

/// Whether `count` rows hold neither infinities nor NaN.
template <class C>
bool all_finite(const C* rows, int count, int dim, std::int64_t ld) {
  IntegerVector<C> bad{};
  for (int j = 0; j < count; ++j)
    for (int d = 0; d < dim; d += width<C>) {
      const Vector<C> x = load(rows + j * ld + d);
      bad |= (x - x) != Vector<C>{};
    }
  for (int i = 0; i < width<C>; ++i)
    if (bad[i]) return false;
  return true;
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
