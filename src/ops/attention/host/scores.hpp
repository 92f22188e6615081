// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/rows.hpp"
#include "ops/common/simd/functions.hpp"

/// \file
/// What happens to a panel of scores between q kᵀ and softmax. A score of −∞ hides its pair.

namespace kformer::Impl::simd::KFORMER_ISA {

/// lse = highest + log(sum); a row that saw nothing has sum 0 and lse −∞.
template <class C>
KFORMER_SIMD_INLINE void store_lse(const Arguments& p, const Sequence& s, const Row& row, C highest, C sum) {
  C* lse = static_cast<C*>(p.lse) + s.batch * p.lse_batch_stride + row.head * p.lse_head_stride +
           (s.q_begin + row.query) * p.lse_query_stride;
  *lse = sum == C(0) ? -Infinity<C>::value : highest + natural_log(sum);
}

/// The lanes of one panel: rows of a tile, and what they see.
struct Panel {
  const Row* rows;
  int count, lanes;  // rows, and rows padded to whole vectors
  int stride;        // from the scores of one key to those of the next
  std::int64_t least_first, greatest_first, least_end, greatest_end;
  std::int64_t ends[block_vectors];  // of the keys that the rows up to this vector see

  /// Whether no row sees any of the keys, by position.
  bool hides_all(std::int64_t first, int keys) const {
    return greatest_end <= first || least_first >= first + keys;
  }
  /// Whether some row does not see some key, by position.
  bool hides_some(std::int64_t first, int keys) const {
    return least_end < first + keys || greatest_first > first;
  }
};

template <class C>
Panel make_panel_of(const Row* rows, int count, int lanes, int stride) {
  Panel panel{rows, count, lanes, stride, rows[0].first, rows[0].first, rows[0].end, rows[0].end, {}};
  for (int i = 0; i < count; ++i) {
    panel.least_first = smaller(panel.least_first, rows[i].first);
    panel.greatest_first = larger(panel.greatest_first, rows[i].first);
    panel.least_end = smaller(panel.least_end, rows[i].end);
    panel.greatest_end = larger(panel.greatest_end, rows[i].end);
    panel.ends[i / width<C>] = panel.greatest_end;
  }
  return panel;
}

/// Along the diagonal of a causal mask the first vectors of a panel see fewer keys than the last. Of `keys` keys from
/// `first`, these many are seen by vector `v` or one before, rounded up to whole register blocks. Pairs meet all
/// keys: their product of zeros flushes a subnormal sum to 0.
template <class T>
int seen_until(const Panel& panel, int v, std::int64_t first, int keys) {
  if (uses_pairs<T> || v + 1 == panel.lanes / width<Arithmetic<T>>) return keys;
  const std::int64_t seen = larger(0, panel.ends[v] - first);
  return static_cast<int>(smaller(keys, (seen + block_rows - 1) / block_rows * block_rows));
}

/// `f(v, begin, end)` for the vectors of a panel: of `keys` keys from `first`, those in [begin, end) are seen by no row
/// before vector v.
template <class T, class F>
KFORMER_SIMD_INLINE void for_each_stair(const Panel& panel, std::int64_t first, int keys, F f) {
  for (int v = 0, begin = 0; v < panel.lanes / width<Arithmetic<T>>; ++v) {
    const int end = seen_until<T>(panel, v, first, keys);
    if (begin < end) f(v, begin, end);
    begin = end;
  }
}

/// What the block mask says of a panel and some keys.
enum class Blocks { none, some, all };

inline const std::int32_t* block_row(const Arguments& p, const Sequence& s, const Row& row) {
  return p.block_mask + s.batch * p.block_batch_stride + row.head * p.block_head_stride +
         row.query / p.block_q * p.block_row_stride;
}

inline Blocks blocks_of(const Arguments& p, const Sequence& s, const Panel& panel, std::int64_t first,
                        int keys) {
  if (!p.block_mask) return Blocks::all;
  bool any = false, every = true;
  const std::int64_t begin = first / p.block_kv, last = (first + keys - 1) / p.block_kv;
  const std::int32_t* before = nullptr;
  for (int i = 0; i < panel.count; ++i) {
    const std::int32_t* blocks = block_row(p, s, panel.rows[i]);
    if (blocks == before) continue;
    before = blocks;
    for (std::int64_t n = begin; n <= last; ++n) (blocks[n] != 0 ? any : every) = blocks[n] != 0;
  }
  return !any ? Blocks::none : every ? Blocks::all : Blocks::some;
}

/// Whether scores are more than scaled products. Products are scaled after they are summed, as exactly as in
/// the textbook: by `finish_scores` if terms follow, else by softmax.
inline bool has_terms(const Arguments& p) {
  return p.softcap > 0 || p.alibi_slopes || p.bias || (p.functor && p.functor->changes_scores);
}
/// Whether scores have a derivative by the scaled products that is not 1.
inline bool has_derivative(const Arguments& p) {
  return p.softcap > 0 || (p.functor && p.functor->changes_scores);
}

template <class C>
__attribute__((noinline)) void apply_scale(C scale, const Panel& panel, int keys, C* scores) {
  for (int j = 0; j < keys; ++j)
    for (int i = 0; i < panel.lanes; i += width<C>) {
      C* at = scores + j * panel.stride + i;
      store<C>(at, load(at) * scale);
    }
}

/// The soft cap on `scores[j · stride + i]`; `derivative[j · lanes + i]`, if any, receives d(score)/d(scaled
/// product).
template <class C>
__attribute__((noinline)) void apply_softcap(double softcap, const Panel& panel, int keys, C* scores,
                                             C* derivative) {
  const C cap = C(softcap);
  for (int j = 0; j < keys; ++j)
    for (int i = 0; i < panel.lanes; i += width<C>) {
      C* at = scores + j * panel.stride + i;
      const Vector<C> t = tanh<C>(load(at) / cap);
      store<C>(at, t * cap);
      if (derivative) store<C>(derivative + j * panel.lanes + i, C(1) - t * t);
    }
}

/// Attention with linear biases, for the keys from `first`.
template <class C>
__attribute__((noinline)) void apply_alibi(const C* slopes, const Panel& panel, std::int64_t first, int keys,
                                           C* scores) {
  constexpr int W = width<C>;
  for (int i0 = 0; i0 < panel.lanes; i0 += W) {
    Vector<C> slope{}, distance{};
    for (int i = 0; i < W && i0 + i < panel.count; ++i) {
      const Row& row = panel.rows[i0 + i];
      slope[i] = slopes[row.head];
      distance[i] = static_cast<C>(row.position - first);
    }
    for (int j = 0; j < keys; ++j) {
      C* at = scores + j * panel.stride + i0;
      store<C>(at, load(at) - slope * magnitude<C>(distance - splat(static_cast<C>(j))));
    }
  }
}

/// The bias, stored as T; −∞ hides whatever the score is.
template <class T, class C = Arithmetic<T>>
__attribute__((noinline)) void apply_bias(const Arguments& p, const Sequence& s, const Panel& panel,
                                          std::int64_t first, int keys, C* scores) {
  for (int i = 0; i < panel.count; ++i) {
    const Row& row = panel.rows[i];
    const T* bias = static_cast<const T*>(p.bias) + s.batch * p.bias_batch_stride +
                    row.head * p.bias_head_stride + row.query * p.bias_query_stride + first;
    for (int j0 = 0; j0 < keys; j0 += width<C>) {
      const int count = keys - j0 < width<C> ? keys - j0 : width<C>;
      C added[width<C>];
      load_row(bias + j0, count, added);
      for (int j = 0; j < count; ++j) {
        C& score = scores[(j0 + j) * panel.stride + i];
        score = added[j] == -Infinity<C>::value ? added[j] : score + added[j];
      }
    }
  }
}

/// −∞ where a row does not see a key by position.
template <class C>
__attribute__((noinline)) void hide_by_position(const Panel& panel, std::int64_t first, int keys, C* scores) {
  constexpr int W = width<C>;
  for (int i0 = 0; i0 < panel.lanes; i0 += W) {
    Vector<C> begin{}, end{};
    // All rows of the vector see the keys [all_begin, all_end).
    std::int64_t all_begin = 0, all_end = keys;
    for (int i = 0; i < W && i0 + i < panel.count; ++i) {
      const std::int64_t row_begin = larger(0, smaller(keys, panel.rows[i0 + i].first - first)),
                         row_end = larger(0, smaller(keys, panel.rows[i0 + i].end - first));
      begin[i] = static_cast<C>(row_begin);
      end[i] = static_cast<C>(row_end);
      all_begin = larger(all_begin, row_begin);
      all_end = smaller(all_end, row_end);
    }
    const auto hide = [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t j = from; j < to; ++j) {
        C* at = scores + j * panel.stride + i0;
        const Vector<C> key = splat(static_cast<C>(j));
        store<C>(at, choose<C>((key < begin) | (key >= end), splat(-Infinity<C>::value), load(at)));
      }
    };
    hide(0, all_begin);
    hide(larger(all_begin, all_end), keys);
  }
}

/// −∞ where the block mask has 0.
template <class C>
__attribute__((noinline)) void hide_by_block(const Arguments& p, const Sequence& s, const Panel& panel,
                                             std::int64_t first, int keys, C* scores) {
  for (int i = 0; i < panel.count; ++i) {
    const std::int32_t* blocks = block_row(p, s, panel.rows[i]);
    for (int j = 0; j < keys; ++j)
      if (blocks[(first + j) / p.block_kv] == 0) scores[j * panel.stride + i] = -Infinity<C>::value;
  }
}

/// What a user's functor does with the pairs that are visible until here.
template <class C>
__attribute__((noinline)) void apply_functor(const Arguments& p, const Sequence& s, const Panel& panel,
                                             std::int64_t first, int keys, C* scores, C* derivative) {
  if (derivative && !(p.softcap > 0))
    for (int i = 0; i < keys * panel.lanes; i += width<C>) store<C>(derivative + i, splat(C(1)));
  for (int i = 0; i < panel.count; ++i) {
    const Row& row = panel.rows[i];
    const int begin = static_cast<int>(larger(0, row.first - first)),
              end = static_cast<int>(smaller(keys, row.end - first));
    if (begin >= end) continue;
    p.functor->finish(p.functor->functor,
                      {s.batch, row.head, s.q_begin + row.query, s.kv_begin + first + begin}, end - begin,
                      scores + begin * panel.stride + i, panel.stride,
                      derivative ? derivative + begin * panel.lanes + i : nullptr, panel.lanes);
  }
}

/// Turns products into scores; only if `has_terms` they are scaled. Returns whether pairs may be hidden.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE bool finish_scores(const Arguments& p, const Sequence& s, const Panel& panel, Blocks blocks,
                                       std::int64_t first, int keys, C scale, C* scores, C* derivative) {
  if (has_terms(p)) apply_scale(scale, panel, keys, scores);
  if (p.softcap > 0) apply_softcap<C>(p.softcap, panel, keys, scores, derivative);
  if (p.alibi_slopes) apply_alibi(static_cast<const C*>(p.alibi_slopes), panel, first, keys, scores);
  if (p.bias) apply_bias<T>(p, s, panel, first, keys, scores);
  if (blocks == Blocks::some) hide_by_block<C>(p, s, panel, first, keys, scores);
  const bool at_edge = panel.hides_some(first, keys);
  if (at_edge) hide_by_position<C>(panel, first, keys, scores);
  const bool finishes = p.functor && p.functor->finish;
  if (finishes) apply_functor<C>(p, s, panel, first, keys, scores, derivative);
  return at_edge || p.bias || blocks == Blocks::some || finishes;
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
