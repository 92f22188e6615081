// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/decode_products.hpp"
#include "ops/attention/host/scores.hpp"

/// \file
/// Flash attention forward for few rows and many keys, as in generation: features are lanes in q kᵀ and P v,
/// keys are lanes in softmax, and no lane is idle however few rows there are. A part of the keys gives a
/// partial result; `attention_combine` puts the parts together in order.

namespace kformer::Impl::simd::KFORMER_ISA {

inline constexpr int decode_rows = 16;   ///< most rows that share a key head
inline constexpr int decode_part = 256;  ///< keys of a partial result
inline constexpr int decode_keys = 128;  ///< keys per step
inline constexpr int decode_visit = 32;  ///< keys of one head that are read before those of the next

template <class T>
struct DecodeTile {
  using C = Arithmetic<T>;
  static constexpr int W = width<C>, weights_stride = decode_keys / per_operand<T>;

  const Arguments& p;
  const Sequence& s;
  int count;  // rows per key head
  std::int64_t q_stride, v_stride;
  Operand<T>* q;  // of all rows
  C *out, *highest, *sum;
  C* scores;            // (row, key) of a step
  Operand<T>* weights;  // the same place, or pairs of keys
  Row* rows;

  static std::size_t scratch_bytes(const Arguments& p, int count) {
    DecodeTile tile{p, {}, count};
    return tile.lay_out(nullptr);
  }

  std::size_t lay_out(void* memory) {
    Scratch scratch(memory);
    const std::int64_t all = p.kv_heads * count;
    q_stride = row_stride<C>(p.head_dim);
    v_stride = row_stride<C>(p.v_head_dim + stored_width<T>);
    q = scratch.take<Operand<T>>(all * q_stride);
    out = scratch.take<C>(all * v_stride);
    highest = scratch.take<C>(all);
    sum = scratch.take<C>(all);
    scores = scratch.take<C>(all * decode_keys);
    weights = reinterpret_cast<Operand<T>*>(uses_pairs<T> ? scratch.take<C>(all * decode_keys / 2) : scores);
    rows = scratch.take<Row>(all);
    return scratch.bytes();
  }

  /// `partial(row)` is where a row's sums go: v_head_dim of them, then the highest score and the sum of
  /// weights.
  template <class Partial>
  void run(std::int64_t begin, std::int64_t end, Partial partial) {
    for (std::int64_t n = 0; n < p.kv_heads * count; ++n) start(n);
    std::int64_t first = end, last = begin;
    for (int r = 0; r < count; ++r) {
      first = smaller(first, larger(begin, rows[r].first));
      last = larger(last, smaller(end, rows[r].end));
    }
    for (; first < last; first += decode_keys)
      step(first, static_cast<int>(smaller(decode_keys, last - first)));
    for (std::int64_t n = 0; n < p.kv_heads * count; ++n) {
      C* to = partial(rows[n]);
      std::memcpy(to, out + n * v_stride, p.v_head_dim * sizeof(C));
      to[p.v_head_dim] = highest[n];
      to[p.v_head_dim + 1] = sum[n];
    }
  }

 private:
  void start(std::int64_t n) {
    rows[n] = make_row(p, s, {n / count, 0, count}, n % count);
    const T* row = row_data<const T>(p.q, s, rows[n]);
    if constexpr (uses_pairs<T>) {
      std::memset(q + n * q_stride, 0, q_stride * sizeof(Pair));
      std::memcpy(q + n * q_stride, row, p.head_dim * sizeof(T));
    } else {
      load_row(row, p.head_dim, q + n * q_stride);
    }
    clear(out + n * v_stride, v_stride);
    highest[n] = -Infinity<C>::largest;
    sum[n] = C(0);
  }

  // The heads of a key are contiguous in memory: only if they are read in sequence, a few keys at a
  // time, is memory read at its full rate.
  template <class F>
  void for_each_visit(const HeadArray& x, std::int64_t first, int keys, F f) const {
    for (int j = 0; j < keys; j += decode_visit)
      for (std::int64_t head = 0; head < p.kv_heads; ++head)
        f(head, j,
          Stream<T>{key_data<const T>(x, s, head, first + j), x.token_stride,
                    keys - j < decode_visit ? keys - j : decode_visit,
                    decode_visit * x.token_stride * static_cast<std::int64_t>(sizeof(T))});
  }

  void step(std::int64_t first, int keys) {
    for_each_visit(p.k, first, keys, [&](std::int64_t head, int j, const Stream<T>& k) {
      by_rows<C>(count, [&]<int together>(int r) {
        const std::int64_t row = head * count + r;
        dot_products<together>(q + row * q_stride, q_stride, k, p.head_dim, scores + row * decode_keys + j,
                               decode_keys);
      });
    });
    bool hidden = false;
    for (std::int64_t r = 0; r < p.kv_heads * count; ++r) {
      C* score = scores + r * decode_keys;
      hidden |= finish_row(rows[r], first, keys, score);
      softmax(r, padded<C>(keys), score);
      if constexpr (uses_pairs<T>) pair_up(score, padded<C>(keys), weights + r * weights_stride);
    }
    for_each_visit(p.v, first, keys, [&](std::int64_t head, int j, const Stream<T>& v) {
      if (hidden && !finite(v))
        hiding_sums(scores + head * count * decode_keys + j, v, out + head * count * v_stride);
      else
        by_rows<C>(count, [&]<int together>(int r) {
          const std::int64_t row = head * count + r;
          weighted_sums<together>(weights + row * weights_stride + j / per_operand<T>, weights_stride, v,
                                  p.v_head_dim, out + row * v_stride, v_stride);
        });
    });
  }

  // Turns the scaled products of a row into scores. Returns whether keys may be hidden.
  bool finish_row(const Row& row, std::int64_t first, int keys, C* score) const {
    for (int j = 0; j < keys; j += W) store<C>(score + j, load(score + j) * C(p.scale));
    if (p.softcap > 0)
      for (int j = 0; j < keys; j += W)
        store<C>(score + j, tanh<C>(load(score + j) / C(p.softcap)) * C(p.softcap));
    if (p.alibi_slopes)
      for (int j = 0; j < keys; j += W) {
        const Vector<C> distance = ramp<C>() + C(first + j - row.position);
        store<C>(score + j,
                 load(score + j) - magnitude<C>(distance) * static_cast<const C*>(p.alibi_slopes)[row.head]);
      }
    if (p.bias) {
      const T* bias = static_cast<const T*>(p.bias) + s.batch * p.bias_batch_stride +
                      row.head * p.bias_head_stride + row.query * p.bias_query_stride + first;
      for (int j = 0; j < keys; j += W) {
        C added[W];
        load_row(bias + j, keys - j < W ? keys - j : W, added);
        const Vector<C> x = load(added);
        store<C>(score + j, choose<C>(x == splat(-Infinity<C>::value), x, load(score + j) + x));
      }
    }
    if (p.block_mask) {
      const std::int32_t* blocks = block_row(p, s, row);
      for (int j = 0; j < keys; ++j)
        if (blocks[(first + j) / p.block_kv] == 0) score[j] = -Infinity<C>::value;
    }
    const bool at_edge = row.first > first || row.end < first + keys;
    if (at_edge)
      for (int j = 0; j < keys; ++j)
        if (first + j < row.first || first + j >= row.end) score[j] = -Infinity<C>::value;
    for (int j = keys; j < padded<C>(keys); ++j) score[j] = -Infinity<C>::value;
    return at_edge || p.bias || p.block_mask;
  }

  void softmax(std::int64_t r, int keys, C* score) {
    Vector<C> most = splat(highest[r]);
    for (int j = 0; j < keys; j += W) most = greater<C>(load(score + j), most);
    C top = most[0];
    for (int i = 1; i < W; ++i) top = most[i] > top ? most[i] : top;
    const C rescale = exp<C>(splat(highest[r] - top))[0];
    Vector<C> total{};
    for (int j = 0; j < keys; j += W) {
      const Vector<C> x = load(score + j);
      const Vector<C> weight = choose<C>(x == splat(-Infinity<C>::value), Vector<C>{}, exp<C>(x - splat(top)));
      store(score + j, weight);
      total += weight;
    }
    C added = 0;
    for (int i = 0; i < W; ++i) added += total[i];
    highest[r] = top;
    sum[r] = sum[r] * rescale + added;
    C* to = out + r * v_stride;
    for (int d = 0; d < padded<C>(p.v_head_dim); d += W) store<C>(to + d, load(to + d) * rescale);
  }

  bool finite(const Stream<T>& v) const {
    C x[W];
    for (int j = 0; j < v.count; ++j)
      for (int d = 0; d < p.v_head_dim; d += W) {
        load_row(v.first + j * v.stride + d, p.v_head_dim - d < W ? p.v_head_dim - d : W, x);
        if (!all_finite(x, 1, W, W)) return false;
      }
    return true;
  }

  // sums(r, d) += Σ_j P(r, j)·v(j, d), where a weight of 0 annihilates.
  void hiding_sums(const C* weights, const Stream<T>& v, C* sums) const {
    C x[W];
    for (int j = 0; j < v.count; ++j)
      for (int d = 0; d < p.v_head_dim; d += W) {
        const int left = p.v_head_dim - d < W ? p.v_head_dim - d : W;
        load_row(v.first + j * v.stride + d, left, x);
        for (int r = 0; r < count; ++r)
          if (const C weight = weights[r * decode_keys + j]; weight != C(0))
            for (int i = 0; i < left; ++i) sums[r * v_stride + d + i] += weight * x[i];
      }
  }
};

/// Where the part of one row is: (batch, head, query, part, v_head_dim + 2).
template <class C>
KFORMER_SIMD_INLINE C* partial_of(const Arguments& p, const host::Parts& parts, const Sequence& s,
                                  const Row& row, std::int64_t part) {
  const std::int64_t at = (s.batch * p.q_heads + row.head) * parts.q_len + s.q_begin + row.query;
  return static_cast<C*>(parts.data) + (at * parts.count + part) * (p.v_head_dim + 2);
}

template <class T>
void attention_decode(const Arguments& p, const host::Parts& parts, const Sequence& s, std::int64_t part,
                      void* scratch) {
  using C = Arithmetic<T>;
  DecodeTile<T> tile{p, s, static_cast<int>(s.q_len * p.group)};
  tile.lay_out(scratch);
  tile.run(part * decode_part, smaller(s.kv_len, (part + 1) * decode_part),
           [&](const Row& row) { return partial_of<C>(p, parts, s, row, part); });
}

/// out and lse of some rows from their parts, in the order of the keys.
template <class T>
void attention_combine(const Arguments& p, const host::Parts& parts, const Sequence& s, const RowRange& range,
                       void* scratch) {
  using C = Arithmetic<T>;
  C* out = static_cast<C*>(scratch);
  const std::int64_t count = (s.kv_len + decode_part - 1) / decode_part;
  const int dim = p.v_head_dim;
  for (int r = 0; r < range.count; ++r) {
    const Row row = make_row(p, s, range, r);
    const C* partial = partial_of<C>(p, parts, s, row, 0);
    C highest = -Infinity<C>::largest, sum = 0;
    // A sink is a score seen before all others.
    if (p.sinks) {
      highest = sink_of<T>(p, row.head);
      sum = 1;
    }
    for (int d = 0; d < padded<C>(dim); ++d) out[d] = C(0);
    for (std::int64_t n = 0; n < count; ++n, partial += dim + 2) {
      const C top = partial[dim] > highest ? partial[dim] : highest;
      const C old = exp<C>(splat(highest - top))[0], now = exp<C>(splat(partial[dim] - top))[0];
      for (int d = 0; d < dim; ++d) out[d] = out[d] * old + partial[d] * now;
      sum = sum * old + partial[dim + 1] * now;
      highest = top;
    }
    const C inverse = sum == C(0) ? C(0) : C(1) / sum;
    for (int d = 0; d < dim; ++d) out[d] *= inverse;
    store_row(out, dim, row_data<T>(p.out, s, row));
    store_lse(p, s, row, highest, sum);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
