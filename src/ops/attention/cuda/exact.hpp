// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/softmax.hpp"
#include "ops/attention/cuda/tiles.hpp"

/// \file
/// The rows of a tile one by one, without tensor cores; nothing that a row does not see enters them: the
/// fallback of a tile if a value is not finite and only some of its queries see it, or, of floats, if a sum is
/// doubtful.

namespace kformer::Impl::cuda {

/// How 16-bit numbers are stored.
template <Half type>
struct Halves {
  using Stored = std::uint16_t;
  KFORMER_DEVICE static float read(Stored x) { return unpack<type>(x); }
  KFORMER_DEVICE static Stored stored(float x) { return static_cast<Stored>(pack<type>(x, 0)); }
};
struct Floats {
  using Stored = float;
  KFORMER_DEVICE static float read(Stored x) { return x; }
  KFORMER_DEVICE static Stored stored(float x) { return x; }
};
template <class Numbers>
using ArgumentsOf = AttentionArgumentsOf<typename Numbers::Stored>;

/// The dot product of two rows.
template <class Numbers, class Stored>
KFORMER_DEVICE float product_of(const Stored* x, const Stored* y, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += Numbers::read(x[i]) * Numbers::read(y[i]);
  return sum;
}

/// A row in part of its keys: feature 32n + lane of the weighted sum of values is element n of `result`.
template <int features>
struct ExactRow {
  RowPart part;
  float result[features / 32];
};

template <class Numbers, int features>
KFORMER_DEVICE ExactRow<features> attend_row(const ArgumentsOf<Numbers>& a, const QueryTile& tile, int query,
                                             int head, const Visible& v) {
  const int lane = thread_index() % 32;
  const float factor = exponent_factor(a);
  const auto* q = a.q.row(tile.batch, tile.q_begin + query, head);
  const auto score = [&](int j) {
    return j < v.end ? capped(a, product_of<Numbers>(q, a.k.row(tile.batch, tile.kv_begin + j, head / a.group),
                                                     a.head_dim))
                     : -infinity();
  };
  float highest = -infinity();
  for (int j = v.begin; j < v.end; j += 32) highest = largest(highest, score(j + lane));
  for (int lanes = 16; lanes > 0; lanes /= 2) highest = largest(highest, shuffle_xor(highest, lanes));
  const float from = highest == -infinity() ? 0 : highest * factor;
  ExactRow<features> row{{highest * factor, 0}, {}};
  for (int first = v.begin; first < v.end; first += 32) {
    const float mine = exp2_fast(score(first + lane) * factor - from);
    row.part.sum += mine;
    for (int j = 0; j < 32; ++j) {
      const float weight = bits_as_float(shuffle(float_as_bits(mine), j));
      if (first + j >= v.end) continue;
      const auto* value = a.v.row(tile.batch, tile.kv_begin + first + j, head / a.group);
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < features / 32; ++n)
        if (n * 32 + lane < a.v_head_dim) row.result[n] += weight * Numbers::read(value[n * 32 + lane]);
    }
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) row.part.sum += shuffle_xor(row.part.sum, lanes);
  return row;
}

template <class Numbers, int features>
KFORMER_DEVICE_CALL void attend_exactly(const ArgumentsOf<Numbers>& a, const QueryTile& tile, int head,
                                        int queries, int warps) {
  const int lane = thread_index() % 32;
  for (int query = tile.first + thread_index() / 32; query < tile.first + queries && query < tile.q_len;
       query += warps) {
    const auto row = attend_row<Numbers, features>(a, tile, query, head, visible_keys(a, tile, query));
    auto* out = a.out.row(tile.batch, tile.q_begin + query, head);
    const float sum = row.part.sum, inverse = sum == 0 ? 0 : 1 / sum;
    KFORMER_DEVICE_UNROLL
    for (int n = 0; n < features / 32; ++n)
      if (n * 32 + lane < a.v_head_dim) out[n * 32 + lane] = Numbers::stored(row.result[n] * inverse);
    if (lane == 0)
      a.lse.at(tile.batch, head, tile.q_begin + query) =
          sum == 0 ? -infinity() : row.part.power * ln_2 + natural_log(sum);
  }
}

}  // namespace kformer::Impl::cuda
