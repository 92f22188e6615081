// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/delta.hpp"
#include "ops/attention/host/scores.hpp"

/// \file
/// Flash attention backward on a tile of keys and any number of rows: five products, nothing computed twice.
/// The tile's keys, values and their gradients stay in the second-level cache while rows stream past. Sᵀ = k qᵀ
/// and dPᵀ = v doutᵀ have rows as lanes, the gradients have features as lanes.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Keys of a block, at most: their P and dS stay in the first caches from product to product.
inline constexpr int block_keys = 96;
/// Keys of calls, and of tiles but the last, are multiples of this.
inline constexpr int backward_keys = 64;
/// Keys of a tile, at most. The more, the less often rows are loaded: with AVX-512 more than the least while keys, values
/// and their gradients take at most 512 KiB, half of a second-level cache of 1 MiB.
inline constexpr int least_tile_keys = 192, most_tile_keys = 384;
template <class C>
int tile_keys(const Arguments& p) {
  const std::int64_t bytes = 2 * (row_stride<C>(p.head_dim) + row_stride<C>(p.v_head_dim)) * sizeof(C);
  const std::int64_t fit = vector_bytes == 64 ? (512 << 10) / bytes / backward_keys * backward_keys : 0;
  return static_cast<int>(larger(least_tile_keys, smaller(most_tile_keys, fit)));
}

/// The length of `parts` even parts that hold `length`, a multiple of `step`.
inline std::int64_t even_part(std::int64_t length, std::int64_t parts, std::int64_t step) {
  return (length + parts * step - 1) / (parts * step) * step;
}

inline constexpr int backward_panels = vector_registers == 32 ? 2 : 4;
template <class C>
inline constexpr int backward_rows = backward_panels * panel_lanes<C>;

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
  std::int64_t end_key;  // behind the last tile
  std::int64_t k_stride, v_stride;
  int k_dim, v_dim;    // padded to whole vectors
  C *k, *v, *dk, *dv;  // (key, feature)
  C *q, *dout, *dq;    // (row, feature)
  Operand<T>*q_panels, *dout_panels;
  // Factors of products, (key, feature) and (row, feature): pairs are neighbours in features of k and v, in
  // rows of q and dout, in keys of k_by_key. Without pairs they are the arrays above.
  Operand<T>*k_factor, *v_factor, *k_by_key, *q_factor, *dout_factor;
  // P and dS likewise, (key, row): neighbours in rows, or in keys.
  Operand<T>*weight_factor, *slope_factor, *slope_by_key;
  C* paired;
  C *probabilities, *gradients;  // (key, row)
  C *lse, *delta;
  C* derivative;  // null unless has_derivative
  Row* rows;
  int tile_begin, tile_end, next_row, last_prefetch, next_sum, next_key;  // what has been prefetched

  static std::size_t scratch_bytes(const Arguments& p) {
    BackwardTile tile{p, {}, {}, {}};
    return tile.lay_out(nullptr);
  }

  std::size_t lay_out(void* memory) {
    Scratch scratch(memory);
    constexpr int most_rows = backward_rows<C>;
    const int most_keys = tile_keys<C>(p);
    k_stride = row_stride<C>(p.head_dim);
    v_stride = row_stride<C>(p.v_head_dim);
    k_dim = padded<C>(p.head_dim);
    v_dim = padded<C>(p.v_head_dim);
    k = scratch.take<C>(most_keys * k_stride);
    v = scratch.take<C>(most_keys * v_stride);
    dk = scratch.take<C>(most_keys * k_stride);
    dv = scratch.take<C>(most_keys * v_stride);
    q = scratch.take<C>(most_rows * k_stride);
    dout = scratch.take<C>(most_rows * v_stride);
    dq = scratch.take<C>(most_rows * k_stride);
    q_panels = scratch.take<Operand<T>>(most_rows * panel_stride(k_dim));
    dout_panels = scratch.take<Operand<T>>(most_rows * panel_stride(v_dim));
    probabilities = scratch.take<C>(block_keys * most_rows);
    gradients = scratch.take<C>(block_keys * most_rows);
    const auto factor = [&](C* plain, std::int64_t count) {
      return reinterpret_cast<Operand<T>*>(uses_pairs<T> ? scratch.take<C>(count) : plain);
    };
    k_factor = factor(k, most_keys * k_stride);
    v_factor = factor(v, most_keys * v_stride);
    k_by_key = factor(k, most_keys / 2 * k_stride);
    q_factor = factor(q, most_rows / 2 * k_stride);
    dout_factor = factor(dout, most_rows / 2 * v_stride);
    weight_factor = factor(probabilities, block_keys * most_rows / 2);
    slope_factor = factor(gradients, block_keys * most_rows / 2);
    slope_by_key = factor(gradients, block_keys / 2 * most_rows);
    paired = scratch.take<C>(uses_pairs<T> ? panel_lanes<C> * larger(k_stride, v_stride) : 0);
    lse = scratch.take<C>(most_rows);
    delta = scratch.take<C>(most_rows);
    derivative = has_derivative(p) ? scratch.take<C>(block_keys * panel_lanes<C>) : nullptr;
    rows = scratch.take<Row>(most_rows);
    return scratch.bytes();
  }

  void run(std::int64_t begin, std::int64_t end) {
    end_key = end;
    std::int64_t tiles = (end - begin + tile_keys<C>(p) - 1) / tile_keys<C>(p);
    for (first_key = begin; first_key < end; first_key += keys, --tiles) {
      keys = static_cast<int>(smaller(even_part(end - first_key, tiles, backward_keys), end - first_key));
      key_tile();
    }
  }

 private:
  void key_tile() {
    load_keys<T>(p.k, s, range.kv_head, first_key, keys, p.head_dim, k, k_stride);
    load_keys<T>(p.v, s, range.kv_head, first_key, keys, p.v_head_dim, v, v_stride);
    if constexpr (uses_pairs<T>)
      for (int j = 0; j < keys; ++j) {
        pair_up(k + j * k_stride, k_dim, k_factor + j * k_stride);
        pair_up(v + j * v_stride, v_dim, v_factor + j * v_stride);
        if (j % 2 == 0)
          zip_rows(k + j * k_stride, j + 1 < keys ? k + (j + 1) * k_stride : nullptr, k_dim,
                   k_by_key + j / 2 * k_stride);
      }
    next_key = 0;
    clear(dk, keys * k_stride);
    clear(dv, keys * v_stride);
    for (int r = 0; r < range.count; r += backward_rows<C>) {
      const int count = range.count - r < backward_rows<C> ? range.count - r : backward_rows<C>;
      const Row first = make_row(p, s, range, r), last = make_row(p, s, range, r + count - 1);
      if (last.end <= first_key) continue;
      if (first.first >= first_key + keys) break;
      if (functor_hides(p, s, range.kv_head, first.query, last.query, first_key, keys)) continue;
      row_tile(r, count);
    }
    for (int j = 0; j < keys; ++j) {
      const std::int64_t key = first_key + j;
      add_row(dk + j * k_stride, p.head_dim, C(p.scale), key_data<C>(g.dk_sum, s, range.kv_head, key));
      add_row(dv + j * v_stride, p.v_head_dim, C(1), key_data<C>(g.dv_sum, s, range.kv_head, key));
    }
  }

  static std::int64_t panel_stride(int dim) { return padded<C>(operands<T>(dim)); }

  void row_tile(int begin, int count) {
    for (int i = 0; i < count; ++i) {
      rows[i] = make_row(p, s, range, begin + i);
      narrow(p, s, rows[i]);
    }
    Panel panel[backward_panels];
    int panels = 0;
    bool needed = false;
    for (int i = 0; i < count; i += panel_lanes<C>, ++panels) {
      const int in_panel = count - i < panel_lanes<C> ? count - i : panel_lanes<C>;
      panel[panels] = make_panel_of<C>(rows + i, in_panel, padded<C>(in_panel), backward_rows<C>);
      needed |= !panel[panels].hides_all(first_key, keys) &&
                blocks_of(p, s, panel[panels], first_key, keys) != Blocks::none;
    }
    if (!needed) return;
    load_rows(begin, count);
    const int block = static_cast<int>(even_part(keys, (keys + block_keys - 1) / block_keys, block_rows));
    for (int j = 0; j < keys; j += block) sum(panel, panels, j, keys - j < block ? keys - j : block);
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
      make_operand_panel<T>(q + i * k_stride, k_stride, in_panel, padded<C>(in_panel), k_dim, paired,
                            q_panels + i * panel_stride(k_dim));
      make_operand_panel<T>(dout + i * v_stride, v_stride, in_panel, padded<C>(in_panel), v_dim, paired,
                            dout_panels + i * panel_stride(v_dim));
    }
    if constexpr (uses_pairs<T>)
      for (int i = 0; i < count; i += 2) {
        zip_rows(q + i * k_stride, i + 1 < count ? q + (i + 1) * k_stride : nullptr, k_dim,
                 q_factor + i / 2 * k_stride);
        zip_rows(dout + i * v_stride, i + 1 < count ? dout + (i + 1) * v_stride : nullptr, v_dim,
                 dout_factor + i / 2 * v_stride);
      }
    tile_begin = next_sum = begin;
    tile_end = next_row = begin + count;
    last_prefetch = tile_end + backward_rows<C>;
  }

  // Between products, prefetches some of the rows of the next tile and the sums to which it adds.
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
      if (first_key + keys + next_key < end_key) {
        prefetch(key_data<const T>(p.k, s, range.kv_head, first_key + keys + next_key), p.head_dim);
        prefetch(key_data<const T>(p.v, s, range.kv_head, first_key + keys + next_key), p.v_head_dim);
      }
      prefetch(key_data<const C>(g.dk_sum, s, range.kv_head, first_key + next_key), p.head_dim);
      prefetch(key_data<const C>(g.dv_sum, s, range.kv_head, first_key + next_key), p.v_head_dim);
    }
  }

  // P and dS of all rows and the keys [j0, j0 + n), then what they add to the gradients.
  void sum(const Panel* panel, int panels, int j0, int n) {
    const std::int64_t block = first_key + j0;
    bool whole = !p.bias && !p.block_mask && !(p.functor && p.functor->finish);
    for (int i = 0; i < panels; ++i) whole &= !panel[i].hides_some(block, n);
    if (whole) {
      int count = 0;
      for (int i = 0; i < panels; ++i) {
        differentiate(panel[i], Blocks::all, count, j0, n);
        count += panel[i].count;
      }
      products(0, count, j0, n);
      return;
    }
    // At an edge each panel is processed separately, with the keys that it sees.
    for (int i = 0; i < panels; ++i) {
      const Panel& x = panel[i];
      const std::int64_t unseen = larger(0, x.least_first - block);
      const std::int64_t first = block + unseen / per_operand<T> * per_operand<T>,
                         end = smaller(block + n, x.greatest_end);
      if (first >= end) continue;
      const int seen = static_cast<int>(end - first), j = static_cast<int>(first - first_key);
      const Blocks blocks = blocks_of(p, s, x, first, seen);
      if (blocks == Blocks::none) continue;
      const int row = i * panel_lanes<C>;
      const bool hidden = differentiate(x, blocks, row, j, seen);
      const int read = keys_read<T>(seen, keys - j);
      if ((hidden || read > seen) && !(all_finite(k + j * k_stride, read, k_dim, k_stride) &&
                                       all_finite(q + row * k_stride, x.count, k_dim, k_stride) &&
                                       all_finite(dout + row * v_stride, x.count, v_dim, v_stride)))
        hiding_products(row, x.count, j, seen);
      else
        products_in_stairs(x, row, j, seen);
    }
  }

  // P and dS of the rows [row, row + count) and the keys [j0, j0 + n), which start at the first row of the
  // scratch tiles; returns whether pairs may be hidden.
  bool differentiate(const Panel& x, Blocks blocks, int row, int j0, int n) {
    C *score = probabilities + row, *gradient = gradients + row;
    const auto multiply = [&](int v, int begin, int end) {
      const std::int64_t at = begin * backward_rows<C> + v * W;
      by_vectors<C>(x.lanes - v * W, [&]<int vectors>() {
        product_panel<Left::by_row, Start::zero, vectors>(
            end - begin, operands<T>(p.head_dim), k_factor + (j0 + begin) * k_stride, k_stride,
            q_panels + row * panel_stride(k_dim) + v * W, x.lanes, score + at, backward_rows<C>);
        product_panel<Left::by_row, Start::zero, vectors>(
            end - begin, operands<T>(p.v_head_dim), v_factor + (j0 + begin) * v_stride, v_stride,
            dout_panels + row * panel_stride(v_dim) + v * W, x.lanes, gradient + at, backward_rows<C>);
      });
    };
    // The derivative of a score that was not computed may be NaN, and NaN times the 0 of a hidden pair too.
    has_derivative(p) ? multiply(0, 0, n) : for_each_stair<T>(x, first_key + j0, n, multiply);
    prefetch_some();
    bool hidden = false;
    by_vectors<C>(x.lanes, [&]<int vectors>() {
      hidden = finish_scores<T>(p, s, x, blocks, first_key + j0, n, C(p.scale), score, derivative);
      hidden ? softmax_gradient<vectors, true>(n, row, score, gradient)
             : softmax_gradient<vectors, false>(n, row, score, gradient);
      if (has_derivative(p))
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
    const Vector<C> scale = splat(has_terms(p) ? C(1) : C(p.scale));
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
        // Rounded as forward does, which no multiply-add would: of large scores that would be far from lse. And no weight
        // exceeds 1, wherever lse is from.
        const Vector<C> logarithm = rounded(x * scale) - saved[v];
        Vector<C> weight =
            exp<C>(choose<C>(as_bits<IntegerVector<C>>(logarithm > Vector<C>{}), Vector<C>{}, logarithm));
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
    if constexpr (uses_pairs<T>) pair_weights(row, count, n);
    add_to_keys(row, count, j0, 0, n);
    prefetch_some();
    add_to_rows(row, count, j0, n);
  }

  // The same for a panel at an edge: each vector of rows skips the keys that it does not see.
  void products_in_stairs(const Panel& x, int row, int j0, int n) {
    if constexpr (uses_pairs<T>) pair_weights(row, x.count, n);
    for_each_stair<T>(x, first_key + j0, n, [&](int v, int begin, int end) {
      add_to_keys(row + v * W, x.count - v * W, j0, begin, end - begin);
    });
    prefetch_some();
    const int vectors = x.lanes / W;
    for (int v = 0, next; v < vectors; v = next) {
      const int seen = seen_until<T>(x, v, first_key + j0, n);
      for (next = v + 1; next < vectors && seen_until<T>(x, next, first_key + j0, n) == seen;) ++next;
      add_to_rows(row + v * W, (next < vectors ? next * W : x.count) - v * W, j0, seen);
    }
  }

  // What rows add to the gradients of the keys [j0 + at, j0 + at + n).
  void add_to_keys(int row, int count, int j0, int at, int n) {
    constexpr int per = per_operand<T>;
    const std::int64_t row_stride = backward_rows<C> / per, weights = at * row_stride + row / per;
    product<Left::by_row, Start::sum>(n, v_dim, operands<T>(count), weight_factor + weights, row_stride,
                                      dout_factor + row / per * v_stride, v_stride, dv + (j0 + at) * v_stride,
                                      v_stride);
    prefetch_some();
    product<Left::by_row, Start::sum>(n, k_dim, operands<T>(count), slope_factor + weights, row_stride,
                                      q_factor + row / per * k_stride, k_stride, dk + (j0 + at) * k_stride,
                                      k_stride);
  }

  // What the keys [j0, j0 + n) add to the gradients of rows.
  void add_to_rows(int row, int count, int j0, int n) {
    product<Left::by_column, Start::sum>(count, k_dim, operands<T>(n), slope_by_key + row, backward_rows<C>,
                                         k_by_key + j0 / per_operand<T> * k_stride, k_stride,
                                         dq + row * k_stride, k_stride);
  }

  void pair_weights(int row, int count, int n) const {
    const int lanes = padded<C>(count);
    for (int j = 0; j < n; ++j) {
      const C *weight = probabilities + j * backward_rows<C> + row,
              *slope = gradients + j * backward_rows<C> + row;
      pair_up(weight, lanes, weight_factor + (j * backward_rows<C> + row) / 2);
      pair_up(slope, lanes, slope_factor + (j * backward_rows<C> + row) / 2);
      if (j % 2 == 0)
        zip_rows(slope, j + 1 < n ? slope + backward_rows<C> : nullptr, lanes,
                 slope_by_key + j / 2 * backward_rows<C> + row);
    }
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
