// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/error.hpp"
#include "kformer/ops/impl/fast_exp.hpp"
#include "kformer/ops/impl/flash_scores.hpp"
#include "kformer/ops/impl/matmul.hpp"

/// \file
/// Shared by the portable flash kernels: the problem as plain numbers, tiles in scratch, and the work on a
/// tile of scores.
///
/// A tile of scores is an array whose fastest index is called a lane: the query in forward and in the gradient
/// of q, the key in the gradients of k and v. Products take operands whose summed index is slowest, so each
/// tile is loaded in the one or two orders its products want.

namespace kformer::Impl {

/// A (batch, seq, heads, dim) array of T whose features lie next to each other.
template <class T>
struct HeadArray {
  T* data;
  std::int64_t batch_stride, token_stride, head_stride;

  /// The first feature of a token.
  KOKKOS_FUNCTION T* at(std::int64_t batch, std::int64_t token, std::int64_t head) const {
    return data + batch * batch_stride + token * token_stride + head * head_stride;
  }
};

template <class T>
HeadArray<T> heads_of(const TensorRef& x) {
  return {static_cast<T*>(x.data), x.stride[0], x.stride[1], x.stride[2]};
}

/// How tokens divide into sequences, which see only themselves: each batch entry is one, or several are packed
/// into a batch of 1. Tokens and keys are counted from the beginning of their sequence.
struct FlashSequences {
  Visibility whole;                                    ///< of a batch entry
  Strided<const std::int32_t, 1> q_starts, kv_starts;  ///< where packed sequences begin
  std::int64_t packed;                                 ///< how many, 0 if each batch entry is one
  bool are_packed;

  /// One sequence, and `count` of its queries or keys from `begin`; no tile at all if `count` is 0.
  struct Tile {
    std::int64_t first_query, first_key;  ///< of the sequence, within the batch entry
    Visibility visibility;                ///< of the sequence
    std::int64_t begin;
    int count;
  };

  /// Enough tiles of `edge` for `length` queries or keys, however they divide.
  std::int64_t tiles(std::int64_t length, int edge) const {
    return ceil_div<std::int64_t>(length, edge) + packed;
  }

  /// Tile number `index` of the queries (or else of the keys) of a batch entry.
  KOKKOS_FUNCTION Tile tile(std::int64_t index, int edge, bool of_queries) const {
    if (!are_packed) return tile_of({0, 0, whole, index * edge, 0}, edge, of_queries);
    Tile t{0, 0, whole, 0, 0};
    std::int64_t q_end = 0, kv_end = 0;
    for (std::int64_t n = 0; n < packed; ++n) {
      // Invalid starts (decreasing, or beyond the end) must not lead outside the arrays.
      t.first_query = clamped(q_starts(n), q_end, whole.q_len);
      t.first_key = clamped(kv_starts(n), kv_end, whole.kv_len);
      q_end = clamped(q_starts(n + 1), t.first_query, whole.q_len);
      kv_end = clamped(kv_starts(n + 1), t.first_key, whole.kv_len);
      t.visibility.q_len = q_end - t.first_query;
      t.visibility.kv_len = kv_end - t.first_key;
      const std::int64_t here =
          ceil_div<std::int64_t>(of_queries ? t.visibility.q_len : t.visibility.kv_len, edge);
      if (index < here) {
        t.begin = index * edge;
        return tile_of(t, edge, of_queries);
      }
      index -= here;
    }
    return t;
  }

 private:
  KOKKOS_FUNCTION static Tile tile_of(Tile t, int edge, bool of_queries) {
    const std::int64_t length = of_queries ? t.visibility.q_len : t.visibility.kv_len;
    t.count = static_cast<int>(Kokkos::min<std::int64_t>(edge, length - t.begin));
    return t;
  }
  KOKKOS_FUNCTION static std::int64_t clamped(std::int64_t x, std::int64_t low, std::int64_t high) {
    return x < low ? low : x > high ? high : x;
  }
};

/// The pairs of a tile of scores: `queries` from `i0` and `keys` from `j0` of a sequence, which begins at
/// `first_query` and `first_key` of the batch entry.
struct FlashPairs {
  std::int64_t batch, head, first_query, first_key, i0, j0;
  int queries, keys;
  Visibility visibility;

  KOKKOS_FUNCTION AttentionIndex at(int i, int j) const {
    return {batch, head, first_query + i0 + i, first_key + j0 + j};
  }
  /// `count` queries of the tile from `i`.
  KOKKOS_FUNCTION AttentionRows rows(int i, int count) const {
    return {batch, head, first_query + i0 + i, first_query + i0 + i + count};
  }
  /// Whether pair (i, j) of the tile sees each other by position.
  KOKKOS_FUNCTION bool see(int i, int j) const { return visibility.sees(i0 + i, j0 + j); }
  /// Whether some of them do not.
  KOKKOS_FUNCTION bool some_hidden() const {
    return j0 < visibility.first(i0 + queries - 1) || j0 + keys > visibility.end(i0);
  }
  /// From a token of q to its position among the tokens of k.
  KOKKOS_FUNCTION std::int64_t shift() const {
    return visibility.kv_len - visibility.q_len + first_key - first_query;
  }
};

/// The keys of a tile, `first ≤ j < end`, that one of its queries sees by position and by `Scores::keys`.
struct SeenKeys {
  std::int32_t first, end;
};

/// The problem as kernels see it.
template <class T, class Scores>
struct FlashProblem {
  std::int64_t batches, q_len, q_heads, kv_len, kv_heads, group;
  int head_dim, v_head_dim;
  HeadArray<const T> q, k, v;
  FlashSequences sequences;
  Scores scores;
  compute_t<T> scale;

  /// The keys of the sequence that some of `count` queries of a tile, from `i`, may see.
  KOKKOS_FUNCTION KeyRange keys(const FlashPairs& pairs, int i, int count) const {
    const Visibility& visibility = pairs.visibility;
    KeyRange range{visibility.first(pairs.i0 + i), visibility.end(pairs.i0 + i + count - 1)};
    if constexpr (!Scores::plain) {
      const KeyRange own = scores.keys(pairs.rows(i, count));
      // Own ranges may reach beyond the sequence, to the limits of their type.
      range.first = Kokkos::max(range.first, Kokkos::max(own.first, pairs.first_key) - pairs.first_key);
      range.end =
          Kokkos::min(range.end, Kokkos::min(own.end, pairs.first_key + visibility.kv_len) - pairs.first_key);
    }
    return range;
  }
  /// Whether a tile needs no work at all; the same answer on every thread of the team.
  template <class Member>
  KOKKOS_FUNCTION bool skips(const Member& team, const FlashPairs& pairs) const {
    const KeyRange seen = keys(pairs, 0, pairs.queries);
    if (seen.end <= pairs.j0 || seen.first >= pairs.j0 + pairs.keys) return true;
    if constexpr (Scores::plain)
      return false;
    else
      return scores.skips(team, pairs.batch, pairs.head, pairs.i0, pairs.queries, pairs.j0, pairs.keys);
  }
  /// Whether some pair of a tile may be hidden.
  KOKKOS_FUNCTION bool may_hide(const FlashPairs& pairs) const {
    if constexpr (Scores::plain)
      return pairs.some_hidden();
    else
      return pairs.some_hidden() || scores.hides();
  }
  /// What each query of a tile sees, for `sees`; plain scores need none of it.
  template <class Member>
  KOKKOS_FUNCTION void find_seen_keys(const Member& team, const FlashPairs& pairs, SeenKeys* seen) const {
    if constexpr (!Scores::plain)
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, pairs.queries), [&](int i) {
        const KeyRange range = keys(pairs, i, 1);
        const auto within = [&](std::int64_t key) {
          return static_cast<std::int32_t>(
              Kokkos::clamp<std::int64_t>(key - pairs.j0, 0, static_cast<std::int64_t>(pairs.keys)));
        };
        seen[i] = {within(range.first), within(range.end)};
      });
  }
  /// Whether a pair of a tile sees each other.
  KOKKOS_FUNCTION bool sees(const FlashPairs& pairs, const SeenKeys* seen, int i, int j) const {
    if constexpr (Scores::plain)
      return pairs.see(i, j);
    else
      return j >= seen[i].first && j < seen[i].end && scores.sees(pairs.at(i, j));
  }
};

/// Scratch for the `SeenKeys` of `edge` queries, in elements of C: none for plain scores.
template <class Scores, class C>
KOKKOS_FUNCTION constexpr int seen_keys_elements(int edge) {
  return Scores::plain ? 0 : edge * static_cast<int>(sizeof(SeenKeys) / sizeof(C));
}

template <class T, class P, class Scores>
FlashProblem<T, Scores> flash_problem(const P& p, const Scores& scores) {
  const std::int64_t q_len = p.q.extent[1], q_heads = p.q.extent[2], kv_len = p.k.extent[1],
                     kv_heads = p.k.extent[2];
  const AttentionExtraRefs& x = p.extras;
  return {p.q.extent[0],
          q_len,
          q_heads,
          kv_len,
          kv_heads,
          kv_heads > 0 ? q_heads / kv_heads : 1,
          static_cast<int>(p.q.extent[3]),
          static_cast<int>(p.v.extent[3]),
          heads_of<const T>(p.q),
          heads_of<const T>(p.k),
          heads_of<const T>(p.v),
          {{q_len, kv_len, p.options.window, p.options.causal},
           x.cu_seqlens_q.template as<const std::int32_t, 1>(),
           x.cu_seqlens_kv.template as<const std::int32_t, 1>(),
           x.cu_seqlens_q.present() ? x.cu_seqlens_q.extent[0] - 1 : 0,
           x.cu_seqlens_q.present()},
          scores,
          static_cast<compute_t<T>>(attention_scale(p.options, p.q.extent[3]))};
}

/// Allocates consecutive parts of a team's scratch.
template <class C>
class ScratchTiles {
 public:
  KOKKOS_FUNCTION explicit ScratchTiles(void* memory) : m_next(static_cast<C*>(memory)) {}
  KOKKOS_FUNCTION C* take(int count) {
    C* here = m_next;
    m_next += count;
    return here;
  }
  template <class Scores>
  KOKKOS_FUNCTION SeenKeys* take_seen_keys(int edge) {
    return reinterpret_cast<SeenKeys*>(take(seen_keys_elements<Scores, C>(edge)));
  }

 private:
  C* m_next;
};

/// The edge of the square tile of scores: the largest of 64, 32, 16 whose tiles (`elements(edge)` in all) fit
/// the fast scratch of a device, or any scratch of a host, which is cached memory.
template <class Exec, class C, class Elements>
int flash_tile(Elements elements) {
  const std::size_t most = Kokkos::TeamPolicy<Exec>::scratch_size_max(is_host_space<Exec> ? 1 : 0);
  constexpr int least = RegisterBlock<Exec, C>::cols < 16 ? 16 : RegisterBlock<Exec, C>::cols;
  for (int edge = 64; edge > least; edge /= 2)
    if (elements(edge) * sizeof(C) + 64 <= most) return edge;
  return least;
}

/// A policy of `league` teams with scratch for `elements`, handed out one by one: tiles at an edge cost less
/// than others.
/// \throws NotSupported if Kokkos has less scratch
template <class Exec, class C>
auto flash_policy(const Exec& exec, std::int64_t league, std::int64_t elements, int& level) {
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(C) + 64;
  level = bytes <= std::size_t(Policy::scratch_size_max(0)) ? 0 : 1;
  if (const std::size_t most = Policy::scratch_size_max(level); bytes > most)
    throw NotSupported("kformer::attention: heads of so many features need " + std::to_string(bytes) +
                       " bytes of scratch memory for a tile, but Kokkos has " + std::to_string(most) +
                       "; use smaller heads");
  Policy policy = is_host_space<Exec> ? Policy(exec, static_cast<int>(league), 1)
                                      : Policy(exec, static_cast<int>(league), 8, 32);
  policy.set_scratch_size(level, Kokkos::PerTeam(bytes));
  policy.set_chunk_size(1);
  return policy;
}

/// Lanes a thread works on at once: enough for vector registers on the host, one on a device.
template <class Exec, class C>
inline constexpr int flash_lanes = RegisterBlock<Exec, C>::cols / (is_host_space<Exec> ? 1 : 4);

/// tile[d · edge + i] = x(token0 + i, d) for the first `count` tokens, 0 for the others up to `edge`.
template <class Exec, class C, class T>
KOKKOS_FUNCTION void load_by_feature(const TeamMember<Exec>& team, const T* x, std::int64_t token_stride,
                                     int count, int edge, int features, C* tile) {
  load_tile<Exec>(team, x, token_stride, 1, count, edge, features, tile, edge);
}

/// tile[i · padded_features + d] = x(token0 + i, d) for the first `count` tokens; padding features are 0.
template <class Exec, class C, class T>
KOKKOS_FUNCTION void load_by_token(const TeamMember<Exec>& team, const T* x, std::int64_t token_stride,
                                   int count, int features, int padded_features, C* tile) {
  load_tile<Exec>(team, x, 1, token_stride, features, padded_features, count, tile, padded_features);
}

/// c += aᵀ b where a zero of `a` hides the row of `b`, NaN and all; `may_hide` says whether `a` has such zeros.
template <class Exec, class C>
KOKKOS_FUNCTION void hiding_product(const TeamMember<Exec>& team, bool may_hide, int m, int n, int k,
                                    const C* a, int lda, const C* b, int ldb, C* c, int ldc) {
  if (may_hide && !all_finite<Exec>(team, b, n, k, ldb))
    annihilating_tile_product<Exec>(team, m, n, k, a, lda, b, ldb, c, ldc);
  else
    tile_product<Exec, true>(team, m, n, k, a, lda, b, ldb, c, ldc);
}

/// Writes `count` rows of a tile as tokens.
template <class Exec, class C, class T>
KOKKOS_FUNCTION void store_tokens(const TeamMember<Exec>& team, const C* tile, int count, int features,
                                  int padded_features, C factor, T* to, std::int64_t token_stride) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int i) {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, features),
                         [&](int d) { to[i * token_stride + d] = T(factor * tile[i * padded_features + d]); });
  });
}

}  // namespace kformer::Impl
