// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/softmax.hpp"
#include "ops/attention/cuda/tiles.hpp"

/// \file
/// What the kernels of attention backward share.

namespace kformer::Impl::cuda {

template <class Stored>
struct GradientArgumentsOf {
  AttentionArgumentsOf<Stored> a;
  Heads<Stored> dout, dq, dk, dv;
  float* delta;  ///< (batch, q_heads, q_len), contiguous: Σ_d dout · out
  int kv_heads, q_len;
};
using GradientArguments = GradientArgumentsOf<std::uint16_t>;

/// δ of all queries. \throws std::runtime_error if CUDA refuses the launch
void attention_delta(Stream stream, Half type, const GradientArguments& g, const Sequences& sequences);
void attention_delta(Stream stream, const GradientArgumentsOf<float>& g, const Sequences& sequences);

/// δ is there already.
/// \param machine  the device's, by which tiles are chosen
/// \throws std::runtime_error if CUDA refuses a launch
void attention_backward(Stream stream, const Machine& machine, Half type, const GradientArguments& g,
                        const Sequences& sequences);

/// The same of floats, whose products are sums of products in TF32.
void attention_backward_tf32x3(Stream stream, const Machine& machine, const GradientArgumentsOf<float>& g,
                               const Sequences& sequences);

template <class Stored>
KFORMER_DEVICE float& delta_of(const GradientArgumentsOf<Stored>& g, int batch, int head, int query) {
  return g.delta[(static_cast<std::int64_t>(batch) * g.a.q_heads + head) * g.q_len + query];
}

/// What the pairs of a query have in common.
struct QueryStatistics {
  float from;  ///< lse · log₂ e; +∞ for a query that saw nothing, so that its weights are 0
  float delta;
};
KFORMER_DEVICE QueryStatistics no_statistics() { return {infinity(), 0}; }
template <class Stored>
KFORMER_DEVICE QueryStatistics statistics_of(const GradientArgumentsOf<Stored>& g, const QueryTile& t, int head,
                                             int query) {
  const float lse = g.a.lse.at(t.batch, head, t.q_begin + query);
  if (lse == -infinity()) return no_statistics();
  return {lse * log2_e, delta_of(g, t.batch, head, t.q_begin + query)};
}

/// P and dS of a pair.
struct PairGradient {
  float weight, slope;
};

/// P = exp(S − lse), dS = P ∘ (dP − δ), by the product of query and key.
class Differentiation {
 public:
  KFORMER_DEVICE explicit Differentiation(const AttentionRules& a)
      : m_softcap(a.softcap), m_factor(a.softcap > 0 ? cap_factor(a) : a.scale * log2_e) {}

  KFORMER_DEVICE bool caps() const { return m_softcap > 0; }
  KFORMER_DEVICE PairGradient operator()(float product, float weight_gradient, const QueryStatistics& q) const {
    return caps() ? of_pair<true>(product, weight_gradient, q) : of_pair<false>(product, weight_gradient, q);
  }
  /// The same where `caps()` is known: with a branch per pair the compiler would not mix their instructions.
  template <bool caps>
  KFORMER_DEVICE PairGradient of_pair(float product, float weight_gradient, const QueryStatistics& q) const {
    product *= m_factor;
    float derivative = 1;
    if constexpr (caps) {
      const float capped = hyperbolic_tangent(product);
      derivative = 1 - capped * capped;
      product = capped * m_softcap * log2_e;
    }
    const float weight = exp2_fast(product - q.from);
    return {weight, weight * (weight_gradient - q.delta) * derivative};
  }

 private:
  float m_softcap;
  float m_factor;  ///< of the product, in a power of 2 or inside the soft cap
};

/// The tokens whose gradients a kernel computes. Its blocks own tiles of them, and the others pass by.
enum class Side { queries, keys };

/// The sequences with the owned tokens in the place of queries.
template <Side side>
Sequences owned_first(const Sequences& s) {
  if (side == Side::queries) return s;
  return {s.count, s.kv_len, s.q_len, s.kv_starts, s.q_starts};
}

/// Tile `tile` of `rows` of what is owned; `first` is the first of them. Where there is none `owned_length` is
/// 0.
template <Side side, int rows>
KFORMER_DEVICE QueryTile find_owned_tile(const Sequences& owned, int tile) {
  QueryTile t = find_tile<rows>(owned, tile);
  if constexpr (side == Side::queries) return t;
  // The first keys are seen by the most queries: they come first.
  t.first = (t.q_len - 1) / rows * rows - t.first;
  return {t.batch, t.kv_begin, t.kv_len, t.q_begin, t.q_len, t.first};
}

template <Side side>
KFORMER_DEVICE int owned_length(const QueryTile& t) {
  return side == Side::queries ? t.q_len : t.kv_len;
}

/// The queries that see key `key`: [begin, end).
KFORMER_DEVICE Visible visible_queries(const AttentionRules& a, const QueryTile& t, int key) {
  const int diagonal = key + t.q_len - t.kv_len;
  Visible v{0, t.q_len};
  if (a.causal && diagonal > v.begin) v.begin = diagonal;
  if (a.window > 0) {
    if (!a.causal && diagonal - a.window + 1 > v.begin) v.begin = diagonal - a.window + 1;
    if (diagonal + a.window < v.end) v.end = diagonal + a.window;
  }
  return v;
}

/// What meets row `row` of what is owned: keys of a query, queries of a key.
template <Side side>
KFORMER_DEVICE Visible visible_partners(const AttentionRules& a, const QueryTile& t, int row) {
  return side == Side::queries ? visible_keys(a, t, row) : visible_queries(a, t, row);
}

/// The operands of a pair: `first` are the factors of S, q and k, `second` those of dP, dout and v.
template <class Stored>
struct OperandRows {
  const Stored *first, *second;
};
template <class Stored>
KFORMER_DEVICE OperandRows<Stored> query_rows(const GradientArgumentsOf<Stored>& g, const QueryTile& t,
                                              int head, int query) {
  return {g.a.q.row(t.batch, t.q_begin + query, head), g.dout.row(t.batch, t.q_begin + query, head)};
}
template <class Stored>
KFORMER_DEVICE OperandRows<Stored> key_rows(const GradientArgumentsOf<Stored>& g, const QueryTile& t,
                                            int kv_head, int key) {
  return {g.a.k.row(t.batch, t.kv_begin + key, kv_head), g.a.v.row(t.batch, t.kv_begin + key, kv_head)};
}

/// Where the gradients of an owned row go: of q or k, of v.
template <class Stored>
struct GradientRows {
  Stored *first, *second;
};
template <Side side, class Stored>
KFORMER_DEVICE GradientRows<Stored> gradient_rows(const GradientArgumentsOf<Stored>& g, const QueryTile& t,
                                                  int head, int row) {
  if constexpr (side == Side::queries) return {g.dq.row(t.batch, t.q_begin + row, head), nullptr};
  return {g.dk.row(t.batch, t.kv_begin + row, head), g.dv.row(t.batch, t.kv_begin + row, head)};
}

}  // namespace kformer::Impl::cuda
