// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/ops/attention_options.hpp"

/// \file
/// Flash attention (Dao et al., arXiv:2205.14135 and arXiv:2307.08691): attention tile by tile, with memory
/// linear in the sequence, forward and backward.

namespace kformer {

namespace Impl {

/// `mask` may be absent.
struct AttentionForward {
  static constexpr const char* op = "attention";
  static constexpr const char* function = "attention_forward";
  TensorRef q, k, v, mask, out, lse;
  AttentionOptions options;
  Operands operands() const;
  void check() const;
};

/// `mask` may be absent.
struct AttentionBackward {
  static constexpr const char* op = "attention";
  static constexpr const char* function = "attention_backward";
  TensorRef q, k, v, mask, out, lse, dout, dq, dk, dv;
  AttentionOptions options;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// `S = scale · q kᵀ`, `P = softmax(S)` over the keys a query sees, `out = P v`, `lse = log Σ exp(S)`. Query
/// heads share key/value heads in groups: head `h` reads `h / (q_heads / kv_heads)`. A query that sees no key
/// has out = 0 and lse = −∞. A hidden key or value, NaN included, changes nothing.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param q       (batch, q_len, q_heads, head_dim), T
/// \param k       (batch, kv_len, kv_heads, head_dim), T
/// \param v       (batch, kv_len, kv_heads, v_head_dim), T
/// \param out     (batch, q_len, q_heads, v_head_dim), T, overwritten; saved for backward
/// \param lse     (batch, q_heads, q_len), compute_t<T>, overwritten; saved for backward
/// \param options scale, causal, window
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<3> L>
void attention_forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                       const AttentionOptions& options = {}) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, O, L>,
                "kformer: Views must be accessible from the execution space");
  const Impl::AttentionForward problem{erase(q), erase(k), erase(v), {}, erase(out), erase(lse), options};
  problem.check();
  Impl::run_best(exec, problem);
}

/// The same with a mask added to the scores: `S = scale · q kᵀ + mask`. A mask of −∞ hides a key. The mask is a
/// constant: no gradient flows to it, here or in `attention_masked_backward`.
///
/// \param exec    the instance
/// \param q       (batch, q_len, q_heads, head_dim), T
/// \param k       (batch, kv_len, kv_heads, head_dim), T
/// \param v       (batch, kv_len, kv_heads, v_head_dim), T
/// \param mask    (batch or 1, q_heads or 1, q_len or 1, kv_len), T; an extent of 1 stands for all
/// \param out     (batch, q_len, q_heads, v_head_dim), T, overwritten; saved for backward
/// \param lse     (batch, q_heads, q_len), compute_t<T>, overwritten; saved for backward
/// \param options scale, causal, window; they hide keys in addition to the mask
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> M, ViewOf<4> O, ViewOf<3> L>
void attention_masked_forward(const Exec& exec, const Q& q, const K& k, const V& v, const M& mask, const O& out,
                              const L& lse, const AttentionOptions& options = {}) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, M, O, L>,
                "kformer: Views must be accessible from the execution space");
  const Impl::AttentionForward problem{erase(q),   erase(k),   erase(v), erase(mask),
                                       erase(out), erase(lse), options};
  problem.check();
  Impl::run_best(exec, problem);
}

/// Bytes of workspace `attention_backward` and `attention_masked_backward` need for storage type `T`: one
/// number per query and head.
template <class T, class Exec>
std::size_t attention_backward_workspace_bytes(const Exec&, std::int64_t batch, std::int64_t q_heads,
                                               std::int64_t q_len) {
  Impl::AttentionBackward problem{};
  problem.q.dtype = dtype_of<T>;
  problem.lse.rank = 3;
  problem.lse.extent = {batch, q_heads, q_len};
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// Gradients of `attention_forward`, with P recomputed from lse: `δ = Σ dout ∘ out`, `dP = dout vᵀ`, `dS = P ∘
/// (dP − δ)`, `dq = scale · dS k`, `dk = scale · dSᵀ q`, `dv = Pᵀ dout`; dk and dv sum over the query heads of
/// a group in order, without atomics. A hidden key gets gradient 0.
///
/// \param exec      the instance
/// \param q         (batch, q_len, q_heads, head_dim), T
/// \param k         (batch, kv_len, kv_heads, head_dim), T
/// \param v         (batch, kv_len, kv_heads, v_head_dim), T
/// \param out       (batch, q_len, q_heads, v_head_dim), T, saved by forward
/// \param lse       (batch, q_heads, q_len), compute_t<T>, saved by forward
/// \param dout      like out, T
/// \param dq        like q, overwritten
/// \param dk        like k, overwritten
/// \param dv        like v, overwritten
/// \param options   those of forward
/// \param workspace at least `attention_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<3> L, ViewOf<4> DO,
          ViewOf<4> DQ, ViewOf<4> DK, ViewOf<4> DV>
void attention_backward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                        const DO& dout, const DQ& dq, const DK& dk, const DV& dv,
                        const AttentionOptions& options, const Workspace& workspace) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, O, L, DO, DQ, DK, DV>,
                "kformer: Views must be accessible from the execution space");
  const Impl::AttentionBackward problem{erase(q),    erase(k),  erase(v),  {},        erase(out), erase(lse),
                                        erase(dout), erase(dq), erase(dk), erase(dv), options};
  problem.check();
  Impl::run_best(exec, problem, workspace);
}

/// Gradients of `attention_masked_forward` with respect to q, k and v; the mask is a constant and gets none.
///
/// \param exec      the instance
/// \param q         (batch, q_len, q_heads, head_dim), T
/// \param k         (batch, kv_len, kv_heads, head_dim), T
/// \param v         (batch, kv_len, kv_heads, v_head_dim), T
/// \param mask      (batch or 1, q_heads or 1, q_len or 1, kv_len), T
/// \param out       (batch, q_len, q_heads, v_head_dim), T, saved by forward
/// \param lse       (batch, q_heads, q_len), compute_t<T>, saved by forward
/// \param dout      like out, T
/// \param dq        like q, overwritten
/// \param dk        like k, overwritten
/// \param dv        like v, overwritten
/// \param options   those of forward
/// \param workspace at least `attention_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> M, ViewOf<4> O, ViewOf<3> L,
          ViewOf<4> DO, ViewOf<4> DQ, ViewOf<4> DK, ViewOf<4> DV>
void attention_masked_backward(const Exec& exec, const Q& q, const K& k, const V& v, const M& mask,
                               const O& out, const L& lse, const DO& dout, const DQ& dq, const DK& dk,
                               const DV& dv, const AttentionOptions& options, const Workspace& workspace) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, M, O, L, DO, DQ, DK, DV>,
                "kformer: Views must be accessible from the execution space");
  const Impl::AttentionBackward problem{erase(q),    erase(k),  erase(v),  erase(mask), erase(out), erase(lse),
                                        erase(dout), erase(dq), erase(dk), erase(dv),   options};
  problem.check();
  Impl::run_best(exec, problem, workspace);
}

}  // namespace kformer
