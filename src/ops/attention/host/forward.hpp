// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/scores.hpp"
#include "ops/attention/host/weights.hpp"

/// \file
/// Flash attention forward on one tile of rows. Queries are lanes: Sᵀ = k qᵀ and outᵀ = vᵀ Pᵀ keep softmax free
/// of horizontal operations, and read keys and values in memory order, row by row.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Keys per step: their tiles stay in the second-level cache.
inline constexpr int forward_keys = 128;
inline constexpr int most_forward_panels = vector_bytes == 64 ? 16 : 8;

/// Panels per tile: the more rows, the less often keys and values are loaded; q and out should take no more
/// than half of a second-level cache.
template <class C>
int forward_panels(const Arguments& p) {
  const std::int64_t bytes = panel_lanes<C> * (padded<C>(p.head_dim) + padded<C>(p.v_head_dim)) * sizeof(C);
  return static_cast<int>(larger(1, smaller(most_forward_panels, bytes > 0 ? (512 << 10) / bytes : 1)));
}

template <class T>
struct ForwardTile {
  using C = Arithmetic<T>;
  static constexpr int W = width<C>;

  const Arguments& p;
  const Sequence& s;
  const RowRange& range;
  std::int64_t k_stride, v_stride;  // of rows in scratch memory
  std::int64_t key_stride, value_stride;
  bool in_place;
  Operand<T>* q;                   // panels
  Operand<T>*k_factor, *v_factor;  // (key, feature); pairs are neighbours in features of k, in keys of v
  C *out, *k, *v, *scores, *highest, *sum, *rescale;
  const C* values;  // of a step
  bool knows_finite, values_finite;
  Row* rows;
  int panels;
  Panel panel[most_forward_panels];
  bool started[most_forward_panels];

  static std::size_t scratch_bytes(const Arguments& p) {
    const Sequence s{};
    const RowRange range{};
    ForwardTile tile{p, s, range};
    return tile.lay_out(nullptr);
  }

  // Products read floats in place as fast as from scratch memory if rows are close together. With shorter vectors,
  // products read each row more often.
  static constexpr bool may_be_in_place = std::is_same_v<T, float> && vector_bytes == 64;
  static bool is_close(const HeadArray& x) { return x.token_stride * static_cast<int>(sizeof(C)) <= 1024; }

  std::size_t lay_out(void* memory) {
    Scratch scratch(memory);
    const std::int64_t most_rows = forward_panels<C>(p) * panel_lanes<C>;
    k_stride = row_stride<C>(p.head_dim);
    v_stride = row_stride<C>(p.v_head_dim);
    q = scratch.take<Operand<T>>(most_rows * q_stride());
    out = scratch.take<C>(most_rows * padded<C>(p.v_head_dim));
    k = scratch.take<C>(forward_keys * k_stride);
    v = scratch.take<C>(forward_keys * v_stride);
    k_factor = reinterpret_cast<Operand<T>*>(uses_pairs<T> ? scratch.take<C>(forward_keys * k_stride) : k);
    v_factor = reinterpret_cast<Operand<T>*>(uses_pairs<T> ? scratch.take<C>(forward_keys * v_stride) : v);
    values = v;
    in_place = may_be_in_place && p.v_head_dim % W == 0 && is_close(p.k) && is_close(p.v);
    key_stride = in_place ? p.k.token_stride : k_stride;
    value_stride = in_place ? p.v.token_stride : v_stride;
    // Rows of q on their way into panels, rows of out on their way back, and scores take turns here.
    const std::int64_t rows_size = panel_lanes<C> * (k_stride > v_stride ? k_stride : v_stride);
    scores = scratch.take<C>(larger(forward_keys * panel_lanes<C>, rows_size));
    highest = scratch.take<C>(most_rows);
    sum = scratch.take<C>(most_rows);
    rescale = scratch.take<C>(panel_lanes<C>);
    rows = scratch.take<Row>(most_rows);
    return scratch.bytes();
  }

  void run() {
    start();
    std::int64_t begin = s.kv_len, end = 0;
    for (int n = 0; n < panels; ++n) {
      begin = smaller(begin, panel[n].least_first);
      end = larger(end, panel[n].greatest_end);
    }
    // Steps begin at the same keys whatever the rows of the tile see.
    begin = begin / forward_keys * forward_keys;
    for (std::int64_t first = begin; first < end; first += forward_keys)
      step(first, static_cast<int>(smaller(forward_keys, end - first)), end);
    finish();
  }

 private:
  void start() {
    for (int r = 0; r < range.count; ++r) {
      rows[r] = make_row(p, s, range, r);
      narrow(p, s, rows[r]);
    }
    panels = 0;
    for (int r = 0; r < range.count; r += panel_lanes<C>, ++panels) {
      const int count = range.count - r < panel_lanes<C> ? range.count - r : panel_lanes<C>;
      panel[panels] = make_panel_of<C>(rows + r, count, padded<C>(count), padded<C>(count));
      started[panels] = false;
      for (int i = 0; i < panel[panels].lanes; ++i) {
        highest[r + i] = -Infinity<C>::largest;
        sum[r + i] = C(0);
      }
    }
  }

  // Loads the queries of a panel before its first step, and prefetches those of the next.
  void load_panel(int n) {
    const int row = n * panel_lanes<C>, count = panel[n].count;
    for (int i = 0; i < count; ++i)
      load_row(row_data<const T>(p.q, s, rows[row + i]), p.head_dim, scores + i * k_stride);
    for (int i = row + panel_lanes<C>; i < row + 2 * panel_lanes<C> && i < range.count; ++i)
      prefetch(row_data<const T>(p.q, s, rows[i]), p.head_dim);
    // Softmax needs a positive scale: q takes its sign.
    if (p.scale < 0)
      for (std::int64_t i = 0; i < count * k_stride; i += W) store<C>(scores + i, -load(scores + i));
    make_operand_panel<T>(scores, k_stride, count, panel[n].lanes, padded<C>(p.head_dim), scores,
                          q + row * q_stride());
    clear(out + row * padded<C>(p.v_head_dim), p.v_head_dim * panel[n].lanes);
    started[n] = true;
  }

  // Between products, prefetches some of the keys of the next step.
  void prefetch_some(std::int64_t& next, std::int64_t end) const {
    const std::int64_t step = forward_keys / (2 * panels) + 1;
    for (const std::int64_t last = smaller(end, next + step); next < last; ++next) {
      prefetch(key_data<const T>(p.k, s, range.kv_head, next), p.head_dim);
      prefetch(key_data<const T>(p.v, s, range.kv_head, next), p.v_head_dim);
    }
  }

  // In the last step, prefetches the rows that the panel will write.
  void prefetch_out(int n) const {
    for (int i = 0; i < panel[n].count; ++i)
      prefetch(row_data<const T>(p.out, s, rows[n * panel_lanes<C> + i]), p.v_head_dim);
  }

  // Keys and values of a step: where they are if their rows are close, or in scratch memory.
  void load_step(std::int64_t first, int keys) {
    knows_finite = false;
    if constexpr (may_be_in_place)
      if (in_place) {
        k_factor = key_data<C>(p.k, s, range.kv_head, first);
        values = v_factor = key_data<C>(p.v, s, range.kv_head, first);
        return;
      }
    load_keys<T>(p.k, s, range.kv_head, first, keys, p.head_dim, k, key_stride);
    load_keys<T>(p.v, s, range.kv_head, first, keys, p.v_head_dim, v, value_stride);
    if constexpr (uses_pairs<T>) {
      for (int j = 0; j < keys; ++j)
        pair_up(k + j * key_stride, padded<C>(p.head_dim), k_factor + j * key_stride);
      for (int j = 0; j < keys; j += 2)
        zip_rows(v + j * value_stride, j + 1 < keys ? v + (j + 1) * value_stride : nullptr,
                 padded<C>(p.v_head_dim), v_factor + j / 2 * value_stride);
    }
  }

  // Of the values of this step.
  bool all_values_finite(int keys) {
    if (!knows_finite) values_finite = all_finite(values, keys, padded<C>(p.v_head_dim), value_stride);
    knows_finite = true;
    return values_finite;
  }

  void step(std::int64_t first, int keys, std::int64_t end) {
    Blocks blocks[most_forward_panels];
    bool needed = false;
    for (int n = 0; n < panels; ++n) {
      blocks[n] = panel[n].hides_all(first, keys) ? Blocks::none : blocks_of(p, s, panel[n], first, keys);
      needed |= blocks[n] != Blocks::none;
    }
    if (!needed) return;
    load_step(first, keys);
    std::int64_t next_key = first + keys;
    const std::int64_t last_key = smaller(end, next_key + forward_keys);
    for (int n = 0; n < panels; ++n) {
      if (blocks[n] == Blocks::none) continue;
      const int lanes = panel[n].lanes, row = n * panel_lanes<C>;
      if (!started[n]) load_panel(n);
      prefetch_some(next_key, last_key);
      // Keys before and after all that this panel sees cost nothing.
      const int unseen = static_cast<int>(larger(0, panel[n].least_first - first));
      const int skipped = unseen / per_operand<T> * per_operand<T>;
      const int seen = static_cast<int>(smaller(keys, panel[n].greatest_end - first)) - skipped;
      const C* seen_values = values + skipped * value_stride;
      for_each_stair<T>(panel[n], first + skipped, seen, [&](int vector, int from, int to) {
        by_vectors<C>(lanes - vector * W, [&]<int vectors>() {
          product_panel<Left::by_row, Start::zero, vectors>(
              to - from, operands<T>(p.head_dim), k_factor + (skipped + from) * key_stride, key_stride,
              q + row * q_stride() + vector * W, lanes, scores + from * lanes + vector * W, lanes);
        });
      });
      by_vectors<C>(lanes, [&]<int vectors>() {
        const bool hidden = finish_scores<T>(p, s, panel[n], blocks[n], first + skipped, seen, positive_scale(),
                                             scores, static_cast<C*>(nullptr));
        softmax<vectors>(seen, row);
        C* sums = out + row * padded<C>(p.v_head_dim);
        next_key == end ? prefetch_out(n) : prefetch_some(next_key, last_key);
        const int read = keys_read<T>(seen, keys - skipped);
        if ((hidden || read > seen) && !all_values_finite(keys) &&
            !all_finite(seen_values, read, padded<C>(p.v_head_dim), value_stride))
          hiding_product(seen_values, seen, lanes, sums);
        else
          product_panel<Left::by_column, Start::scaled_sum, vectors>(
              p.v_head_dim, operands<T>(seen), v_factor + skipped / per_operand<T> * value_stride, value_stride,
              weight_factor(seen, lanes), lanes, sums, lanes, rescale);
      });
    }
  }

  std::int64_t q_stride() const { return padded<C>(operands<T>(padded<C>(p.head_dim))); }
  C remaining_scale() const { return has_terms(p) ? C(1) : positive_scale(); }
  C positive_scale() const { return C(p.scale < 0 ? -p.scale : p.scale); }

  // The probabilities as products take them.
  const Operand<T>* weight_factor(int keys, int lanes) const {
    auto* factor = reinterpret_cast<Operand<T>*>(scores);
    if constexpr (uses_pairs<T>)
      for (int j = 0; j < keys; j += 2)
        zip_rows(scores + j * lanes, j + 1 < keys ? scores + (j + 1) * lanes : nullptr, lanes,
                 factor + j / 2 * lanes);
    return factor;
  }

  // One step of the online softmax: scores become probabilities times a factor that `rescale` makes equal for
  // all steps. The highest score is subtracted before the scale is applied: its weight is 1, exactly. A hidden
  // score is −∞, below any threshold.
  template <int vectors>
  void softmax(int keys, int row) {
    const WeightExp<C> weight_of(remaining_scale());
    Vector<C> most[vectors], threshold[vectors], total[vectors];
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) most[v] = load(highest + row + v * W);
    for (int j = 0; j < keys; ++j) {
      KFORMER_SIMD_UNROLL
      for (int v = 0; v < vectors; ++v) most[v] = greater<C>(load(scores + (j * vectors + v) * W), most[v]);
    }
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) {
      threshold[v] = weight_of.threshold(most[v]);
      const Vector<C> factor = weight_of(load(highest + row + v * W), most[v], threshold[v]);
      store(rescale + v * W, factor);
      store(highest + row + v * W, most[v]);
      total[v] = load(sum + row + v * W) * factor;
    }
    for (int j = 0; j < keys; ++j) {
      KFORMER_SIMD_UNROLL
      for (int v = 0; v < vectors; ++v) {
        C* at = scores + (j * vectors + v) * W;
        const Vector<C> weight = weight_of(load(at), most[v], threshold[v]);
        store(at, weight);
        total[v] += weight;
      }
    }
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) store(sum + row + v * W, total[v]);
  }

  // sums(d, lane) = rescale(lane)·sums(d, lane) + Σ_j seen_values(j, d)·P(j, lane), where a probability of 0
  // annihilates.
  void hiding_product(const C* seen_values, int keys, int lanes, C* sums) const {
    for (int d = 0; d < p.v_head_dim; ++d)
      for (int i = 0; i < lanes; ++i) {
        C x = sums[d * lanes + i] * rescale[i];
        for (int j = 0; j < keys; ++j)
          if (scores[j * lanes + i] != C(0)) x += seen_values[j * value_stride + d] * scores[j * lanes + i];
        sums[d * lanes + i] = x;
      }
  }

  // lse of a row; returns what its sums are to be multiplied by. A sink is one more score, without a value. One
  // of −∞ is none: where a row sees nothing, `most` may be −∞, too, and their difference NaN.
  C finish_row(int r) const {
    C most = highest[r] * remaining_scale(), total = sum[r], factor = 1;
    const C score = p.sinks ? sink_of<T>(p, rows[r].head) : -Infinity<C>::value;
    if (score != -Infinity<C>::value) {
      const C top = score > most ? score : most;
      factor = exp<C>(splat(most - top))[0];
      total = total * factor + exp<C>(splat(score - top))[0];
      most = top;
    }
    store_lse(p, s, rows[r], most, total);
    return total == C(0) ? C(0) : factor / total;
  }

  void finish() {
    for (int n = 0; n < panels; ++n) {
      const int row = n * panel_lanes<C>, lanes = panel[n].lanes, dim = padded<C>(p.v_head_dim);
      C* sums = out + row * dim;
      if (!started[n]) clear(sums, dim * lanes);
      for (int i = 0; i < lanes; ++i) rescale[i] = C(0);
      for (int i = 0; i < panel[n].count; ++i) rescale[i] = finish_row(row + i);
      unmake_panel<C>(sums, lanes, dim, rescale, scores, v_stride);
      for (int i = 0; i < panel[n].count; ++i) {
        store_row(scores + i * v_stride, p.v_head_dim, row_data<T>(p.out, s, rows[row + i]));
      }
    }
  }
};

/// Rows per call of `attention_forward`, at most.
template <class T>
int attention_forward_rows(const Arguments& p) {
  return forward_panels<Arithmetic<T>>(p) * panel_lanes<Arithmetic<T>>;
}

template <class T>
void attention_forward(const Arguments& p, const Sequence& s, const RowRange& range, void* scratch) {
  ForwardTile<T> tile{p, s, range};
  tile.lay_out(scratch);
  tile.run();
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
