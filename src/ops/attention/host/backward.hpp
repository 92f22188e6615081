// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/scores.hpp"

/// \file
/// Flash attention backward on a tile of keys and any number of rows: five products, nothing computed twice.
/// The tile's keys, values and their gradients stay in the second-level cache while rows stream past. Sᵀ = k qᵀ
/// and dPᵀ = v doutᵀ have rows as lanes, the gradients have features as lanes.

namespace kformer::Impl::simd::KFORMER_ISA {

inline constexpr int backward_keys = 192;
inline constexpr int backward_panels = vector_registers == 32 ? 2 : 4;
template <class C>
inline constexpr int backward_rows = backward_panels * panel_lanes<C>;

template <class C>
KFORMER_SIMD_INLINE C* delta_of(const Arguments& p, const GradientArguments& g, const Sequence& s,
                                const Row& row) {
  return static_cast<C*>(g.delta) + (s.batch * p.q_heads + row.head) * g.delta_head_stride + s.q_begin +
         row.query;
}

/// delta = Σ_d dout · out, summed in the order of dP: a row that sees one key then has dP − delta = 0, exactly.
template <class T>
void attention_delta(const Arguments& p, const GradientArguments& g, const Sequence& s, const RowRange& range,
                     void* scratch) {
  using C = Arithmetic<T>;
  constexpr int W = width<C>;
  const std::int64_t stride = row_stride<C>(p.v_head_dim);
  C* out = static_cast<C*>(scratch);
  C* dout = out + W * stride;
  for (int begin = 0; begin < range.count; begin += W) {
    const int count = range.count - begin < W ? range.count - begin : W;
    for (int i = 0; i < count; ++i) {
      const Row row = make_row(p, s, range, begin + i);
      load_row(row_data<const T>(p.out, s, row), p.v_head_dim, out + i * stride);
      load_row(row_data<const T>(g.dout, s, row), p.v_head_dim, dout + i * stride);
    }
    Vector<C> sum{};
    for (int d0 = 0; d0 < p.v_head_dim; d0 += W) {
      Vector<C> x[W], y[W];
      for (int i = 0; i < W; ++i) {
        x[i] = i < count ? load(out + i * stride + d0) : Vector<C>{};
        y[i] = i < count ? load(dout + i * stride + d0) : Vector<C>{};
      }
      transpose<C>(x);
      transpose<C>(y);
      // A row that sees only a sink has out = 0, whatever dout holds.
      for (int d = 0; d < W; ++d) sum += x[d] * choose<C>(x[d] == Vector<C>{}, Vector<C>{}, y[d]);
    }
    for (int i = 0; i < count; ++i) *delta_of<C>(p, g, s, make_row(p, s, range, begin + i)) = sum[i];
  }
}

template <class T>
struct BackwardTile {
  using C = Arithmetic<T>;
  static constexpr int W = width<C>;

  const Arguments& p;
  const GradientArguments& g;
  const Sequence& s;
  const RowRange& range;
  std::int64_t first_key;  // of the tile, and how many
  int keys;
  std::int64_t k_stride, v_stride;
  int k_dim, v_dim;              // padded to whole vectors
  C *k, *v, *dk, *dv;            // (key, feature)
  C *q, *dout, *dq;              // (row, feature)
  C *q_panels, *dout_panels;     // panels
  C *probabilities, *gradients;  // (key, row)
  C *lse, *delta, *derivative;
  Row* rows;
  int tile_begin, tile_end, next_row, last_prefetch, next_sum, next_key;  // what has been asked for

  static std::size_t scratch_bytes(const Arguments& p) {
    BackwardTile tile{p, {}, {}, {}};
    return tile.lay_out(nullptr);
  }

  std::size_t lay_out(void* memory) {
    Scratch scratch(memory);
    constexpr int most_rows = backward_rows<C>;
    k_stride = row_stride<C>(p.head_dim);
    v_stride = row_stride<C>(p.v_head_dim);
    k_dim = padded<C>(p.head_dim);
    v_dim = padded<C>(p.v_head_dim);
    k = scratch.take<C>(backward_keys * k_stride);
    v = scratch.take<C>(backward_keys * v_stride);
    dk = scratch.take<C>(backward_keys * k_stride);
    dv = scratch.take<C>(backward_keys * v_stride);
    q = scratch.take<C>(most_rows * k_stride);
    dout = scratch.take<C>(most_rows * v_stride);
    dq = scratch.take<C>(most_rows * k_stride);
    q_panels = scratch.take<C>(most_rows * k_dim);
    dout_panels = scratch.take<C>(most_rows * v_dim);
    probabilities = scratch.take<C>(backward_keys * most_rows);
    gradients = scratch.take<C>(backward_keys * most_rows);
    lse = scratch.take<C>(most_rows);
    delta = scratch.take<C>(most_rows);
    derivative = scratch.take<C>(p.softcap > 0 ? backward_keys * panel_lanes<C> : 0);
    rows = scratch.take<Row>(most_rows);
    return scratch.bytes();
  }

  void run(std::int64_t begin, std::int64_t end) {
    for (first_key = begin; first_key < end; first_key += backward_keys) {
      keys = static_cast<int>(smaller(backward_keys, end - first_key));
      key_tile();
    }
  }

 private:
  void key_tile() {
    load_keys<T>(p.k, s, range.kv_head, first_key, keys, p.head_dim, k, k_stride);
    load_keys<T>(p.v, s, range.kv_head, first_key, keys, p.v_head_dim, v, v_stride);
    next_key = 0;
    clear(dk, keys * k_stride);
    clear(dv, keys * v_stride);
    for (int r = 0; r < range.count; r += backward_rows<C>) {
      const int count = range.count - r < backward_rows<C> ? range.count - r : backward_rows<C>;
      if (make_row(p, s, range, r + count - 1).end <= first_key) continue;
      if (make_row(p, s, range, r).first >= first_key + keys) break;
      row_tile(r, count);
    }
    for (int j = 0; j < keys; ++j) {
      const std::int64_t key = first_key + j;
      add_row(dk + j * k_stride, p.head_dim, C(p.scale), key_data<C>(g.dk_sum, s, range.kv_head, key));
      add_row(dv + j * v_stride, p.v_head_dim, C(1), key_data<C>(g.dv_sum, s, range.kv_head, key));
    }
  }

  static void clear(C* sums, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += W) store(sums + i, Vector<C>{});
  }

  void row_tile(int begin, int count) {
    for (int i = 0; i < count; ++i) rows[i] = make_row(p, s, range, begin + i);
    Panel panel[backward_panels];
    int panels = 0;
    bool needed = false;
    for (int i = 0; i < count; i += panel_lanes<C>, ++panels) {
      const int in_panel = count - i < panel_lanes<C> ? count - i : panel_lanes<C>;
      panel[panels] = make_panel_of(rows + i, in_panel, padded<C>(in_panel), backward_rows<C>);
      needed |= !panel[panels].hides_all(first_key, keys) &&
                blocks_of(p, s, panel[panels], first_key, keys) != Blocks::none;
    }
    if (!needed) return;
    load_rows(begin, count);
    sum(panel, panels);
    for (int i = 0; i < count; ++i)
      add_row(dq + i * k_stride, p.head_dim, C(p.scale), row_data<C>(g.dq_sum, s, rows[i]));
  }

  void load_rows(int begin, int count) {
    for (int i = 0; i < count; ++i) {
      const Row& row = rows[i];
      load_row(row_data<const T>(p.q, s, row), p.head_dim, q + i * k_stride);
      load_row(row_data<const T>(g.dout, s, row), p.v_head_dim, dout + i * v_stride);
      const C saved = static_cast<const C*>(p.lse)[s.batch * p.lse_batch_stride + row.head * p.lse_head_stride +
                                                   (s.q_begin + row.query) * p.lse_query_stride];
      lse[i] = saved;
      delta[i] = *delta_of<C>(p, g, s, row);
    }
    clear(dq, count * k_stride);
    for (int i = count; i < padded<C>(count); ++i) lse[i] = delta[i] = C(0);
    for (int i = 0; i < count; i += panel_lanes<C>) {
      const int in_panel = count - i < panel_lanes<C> ? count - i : panel_lanes<C>;
      make_panel<C>(q + i * k_stride, k_stride, in_panel, padded<C>(in_panel), k_dim, C(sign_of_scale(p)),
                    q_panels + i * k_dim);
      make_panel<C>(dout + i * v_stride, v_stride, in_panel, padded<C>(in_panel), v_dim, C(1),
                    dout_panels + i * v_dim);
    }
    tile_begin = next_sum = begin;
    tile_end = next_row = begin + count;
    last_prefetch = tile_end + backward_rows<C>;
  }

  // Between products, asks for some of the rows of the next tile, and for the sums that will be added to.
  void prefetch_some() {
    constexpr int step = backward_rows<C> / 6;
    for (const int end = next_row + step; next_row < end && next_row < range.count && next_row < last_prefetch;
         ++next_row) {
      const Row row = make_row(p, s, range, next_row);
      prefetch(row_data<const T>(p.q, s, row), p.head_dim);
      prefetch(row_data<const T>(g.dout, s, row), p.v_head_dim);
    }
    for (const int end = next_sum + step; next_sum < end && next_sum < tile_end; ++next_sum)
      prefetch(row_data<const C>(g.dq_sum, s, rows[next_sum - tile_begin]), p.head_dim);
    if (tile_end < range.count) return;
    for (const int end = next_key + keys / 6; next_key < end && next_key < keys; ++next_key) {
      prefetch(key_data<const C>(g.dk_sum, s, range.kv_head, first_key + next_key), p.head_dim);
      prefetch(key_data<const C>(g.dv_sum, s, range.kv_head, first_key + next_key), p.v_head_dim);
    }
  }

  // P and dS of all rows and keys, then what they add to the gradients.
  void sum(const Panel* panel, int panels) {
    bool whole = !p.bias && !p.block_mask;
    for (int i = 0; i < panels; ++i) whole &= !panel[i].hides_some(first_key, keys);
    if (whole) {
      int count = 0;
      for (int i = 0; i < panels; ++i) {
        differentiate(panel[i], Blocks::all, count, 0, keys);
        count += panel[i].count;
      }
      products(0, count, 0, keys);
      return;
    }
    // At an edge each panel goes by itself, with the keys that it sees.
    for (int i = 0; i < panels; ++i) {
      const Panel& x = panel[i];
      const std::int64_t first = larger(first_key, x.least_first),
                         end = smaller(first_key + keys, x.greatest_end);
      if (first >= end) continue;
      const int seen = static_cast<int>(end - first), j = static_cast<int>(first - first_key);
      const Blocks blocks = blocks_of(p, s, x, first, seen);
      if (blocks == Blocks::none) continue;
      const int row = i * panel_lanes<C>;
      const bool hidden = differentiate(x, blocks, row, j, seen);
      if (hidden && !(all_finite(k + j * k_stride, seen, k_dim, k_stride) &&
                      all_finite(q + row * k_stride, x.count, k_dim, k_stride) &&
                      all_finite(dout + row * v_stride, x.count, v_dim, v_stride)))
        hiding_products(row, x.count, j, seen);
      else
        products(row, x.count, j, seen);
    }
  }

  // P and dS of the rows [row, row + count) and the keys [j0, j0 + n), which start at the first row of the
  // scratch tiles; returns whether pairs may be hidden.
  bool differentiate(const Panel& x, Blocks blocks, int row, int j0, int n) {
    C *score = probabilities + row, *gradient = gradients + row;
    bool hidden = false;
    by_vectors<C>(x.lanes, [&]<int vectors>() {
      product_panel<Left::by_row, Start::zero, vectors>(
          n, p.head_dim, k + j0 * k_stride, k_stride, q_panels + row * k_dim, x.lanes, score, backward_rows<C>);
      product_panel<Left::by_row, Start::zero, vectors>(n, p.v_head_dim, v + j0 * v_stride, v_stride,
                                                        dout_panels + row * v_dim, x.lanes, gradient,
                                                        backward_rows<C>);
      hidden = finish_scores<T>(p, s, x, blocks, first_key + j0, n, score, derivative);
      hidden ? softmax_gradient<vectors, true>(n, row, score, gradient)
             : softmax_gradient<vectors, false>(n, row, score, gradient);
      if (p.softcap > 0)
        for (int j = 0; j < n; ++j)
          for (int i = 0; i < x.lanes; i += W) {
            C* at = gradient + j * backward_rows<C> + i;
            store<C>(at, load(at) * load(derivative + j * x.lanes + i));
          }
    });
    return hidden;
  }

  // In place of scores and of the gradients of probabilities: P = exp(S − lse) and dS = P ∘ (dP − δ).
  template <int vectors, bool hidden>
  void softmax_gradient(int seen, int row, C* score, C* gradient) const {
    const Vector<C> scale = splat(C(remaining_scale(p)));
    Vector<C> saved[vectors], mean[vectors];
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) {
      saved[v] = load(lse + row + v * W);
      mean[v] = load(delta + row + v * W);
    }
    for (int j = 0; j < seen; ++j) {
      KFORMER_SIMD_UNROLL
      for (int v = 0; v < vectors; ++v) {
        C *s_at = score + j * backward_rows<C> + v * W, *g_at = gradient + j * backward_rows<C> + v * W;
        const Vector<C> x = load(s_at);
        Vector<C> weight = exp<C>(x * scale - saved[v]);
        Vector<C> slope = weight * (load(g_at) - mean[v]);
        if (hidden) {
          const auto none = x == splat(-Infinity<C>::value);
          weight = choose<C>(none, Vector<C>{}, weight);
          slope = choose<C>(none, Vector<C>{}, slope);
        }
        store(s_at, weight);
        store(g_at, slope);
      }
    }
  }

  void products(int row, int count, int j0, int n) {
    const C *weight = probabilities + row, *slope = gradients + row;
    product<Left::by_row, Start::sum>(n, v_dim, count, weight, backward_rows<C>, dout + row * v_stride,
                                      v_stride, dv + j0 * v_stride, v_stride);
    product<Left::by_row, Start::sum>(n, k_dim, count, slope, backward_rows<C>, q + row * k_stride, k_stride,
                                      dk + j0 * k_stride, k_stride);
    prefetch_some();
    product<Left::by_column, Start::sum>(count, k_dim, n, slope, backward_rows<C>, k + j0 * k_stride, k_stride,
                                         dq + row * k_stride, k_stride);
  }

  // The three products where a probability of 0 annihilates.
  void hiding_products(int row, int count, int j0, int n) const {
    for (int j = 0; j < n; ++j)
      for (int i = row; i < row + count; ++i) {
        const C weight = probabilities[j * backward_rows<C> + i], slope = gradients[j * backward_rows<C> + i];
        if (weight == C(0)) continue;
        for (int d = 0; d < v_dim; ++d) dv[(j0 + j) * v_stride + d] += weight * dout[i * v_stride + d];
        for (int d = 0; d < k_dim; ++d) {
          dk[(j0 + j) * k_stride + d] += slope * q[i * k_stride + d];
          dq[i * k_stride + d] += slope * k[(j0 + j) * k_stride + d];
        }
      }
  }
};

template <class T>
void attention_backward(const Arguments& p, const GradientArguments& g, const Sequence& s,
                        const RowRange& range, std::int64_t first_key, std::int64_t keys, void* scratch) {
  BackwardTile<T> tile{p, g, s, range};
  tile.lay_out(scratch);
  tile.run(first_key, first_key + keys);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
