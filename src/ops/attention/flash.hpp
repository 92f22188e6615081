// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention_options.hpp"
#include "ops/common/fast_exp.hpp"
#include "ops/common/matmul.hpp"

/// \file
/// What the portable flash kernels share: the problem as plain numbers, tiles in scratch, and the work on a
/// tile of scores.
///
/// A tile of scores is an array whose fastest index is called a lane: the query in forward and in the gradient
/// of q, the key in the gradients of k and v. Products take operands whose summed index is slowest, so each
/// tile is loaded in the one or two orders its products want.

namespace kformer::Impl {

/// A (batch, seq, heads, dim) array of T whose features lie next to each other.
template <class T>
struct Heads {
  T* data;
  std::int64_t batch_stride, token_stride, head_stride;

  /// The first feature of a token.
  KOKKOS_FUNCTION T* at(std::int64_t batch, std::int64_t token, std::int64_t head) const {
    return data + batch * batch_stride + token * token_stride + head * head_stride;
  }
};

template <class T>
Heads<T> heads_of(const TensorRef& x) {
  return {static_cast<T*>(x.data), x.stride[0], x.stride[1], x.stride[2]};
}

/// The problem as kernels see it.
template <class T>
struct FlashProblem {
  std::int64_t batches, q_len, q_heads, kv_len, kv_heads, group;
  int head_dim, v_head_dim;
  Heads<const T> q, k, v;
  Visibility visibility;
  Strided<const T, 4> mask;  // extents of 1 have stride 0
  bool masked;
  compute_t<T> scale;

  /// What is added to a score; −∞ hides the key.
  KOKKOS_FUNCTION compute_t<T> added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return masked ? static_cast<compute_t<T>>(mask(b, h, i, j)) : compute_t<T>(0);
  }
};

template <class T, class P>
FlashProblem<T> flash_problem(const P& p) {
  const std::int64_t q_heads = p.q.extent[2], kv_heads = p.k.extent[2];
  FlashProblem<T> f{p.q.extent[0],
                    p.q.extent[1],
                    q_heads,
                    p.k.extent[1],
                    kv_heads,
                    kv_heads > 0 ? q_heads / kv_heads : 1,
                    static_cast<int>(p.q.extent[3]),
                    static_cast<int>(p.v.extent[3]),
                    heads_of<const T>(p.q),
                    heads_of<const T>(p.k),
                    heads_of<const T>(p.v),
                    {p.q.extent[1], p.k.extent[1], p.options.window, p.options.causal},
                    p.extras.bias.template as<const T, 4>(),
                    p.extras.bias.present(),
                    static_cast<compute_t<T>>(attention_scale(p.options, p.q.extent[3]))};
  for (int r = 0; r < 3; ++r)
    if (p.extras.bias.present() && p.extras.bias.extent[r] == 1) f.mask.stride[r] = 0;
  return f;
}

/// Hands out parts of a team's scratch, one after the other.
template <class C>
class ScratchTiles {
 public:
  KOKKOS_FUNCTION explicit ScratchTiles(void* memory) : m_next(static_cast<C*>(memory)) {}
  KOKKOS_FUNCTION C* take(int count) {
    C* here = m_next;
    m_next += count;
    return here;
  }

 private:
  C* m_next;
};

/// The edge of the square tile of scores: the largest of 64, 32, 16 whose tiles (`elements(edge)` in all) fit
/// the fast scratch of a device. The host takes 64: its scratch is cached memory.
template <class Exec, class C, class Elements>
int flash_tile(Elements elements) {
  if constexpr (!is_host_space<Exec>)
    for (int edge = 64; edge >= 16; edge /= 2)
      if (elements(edge) * sizeof(C) + 64 <= std::size_t(Kokkos::TeamPolicy<Exec>::scratch_size_max(0)) ||
          edge == 16)
        return edge;
  return 64;
}

/// A policy of `league` teams with scratch for `elements`, handed out one by one: tiles at an edge cost less
/// than others.
template <class Exec, class C>
auto flash_policy(const Exec& exec, std::int64_t league, std::int64_t elements, int& level) {
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(C) + 64;
  level = bytes <= std::size_t(Policy::scratch_size_max(0)) ? 0 : 1;
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
