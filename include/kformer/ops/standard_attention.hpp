// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/ops/attention_options.hpp"

/// \file
/// Attention with the scores in memory (Vaswani et al., arXiv:1706.03762, eq. 1): the textbook form, and the
/// baseline that flash attention is measured against.

namespace kformer {

namespace Impl {

/// `mask` may be absent.
struct StandardAttentionForward {
  static constexpr const char* op = "standard_attention";
  static constexpr const char* function = "standard_attention_forward";
  TensorRef q, k, v, mask, out, probabilities;
  AttentionOptions options;
  Operands operands() const;
  void check() const;
};

struct StandardAttentionBackward {
  static constexpr const char* op = "standard_attention";
  static constexpr const char* function = "standard_attention_backward";
  TensorRef q, k, v, probabilities, dout, dq, dk, dv;
  AttentionOptions options;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// `S = scale · q kᵀ`, `P = softmax(S)` over the keys a query sees, `out = P v`. Query heads share key/value
/// heads in groups: head `h` reads `h / (q_heads / kv_heads)`. A query that sees no key has P = 0 and out = 0.
/// A hidden key or value, NaN included, changes nothing.
///
/// \param exec          the instance everything is launched on; nothing is fenced or allocated
/// \param q             (batch, q_len, q_heads, head_dim), T
/// \param k             (batch, kv_len, kv_heads, head_dim), T
/// \param v             (batch, kv_len, kv_heads, v_head_dim), T
/// \param out           (batch, q_len, q_heads, v_head_dim), T, overwritten
/// \param probabilities (batch, q_heads, q_len, kv_len), T, dense, overwritten: first the scores, then the
/// softmax in their
///                      place; saved for backward
/// \param options       scale, causal, window
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<4> P>
void standard_attention_forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out,
                                const P& probabilities, const AttentionOptions& options = {}) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, O, P>,
                "kformer: Views must be accessible from the execution space");
  const Impl::StandardAttentionForward problem{
      erase(q), erase(k), erase(v), {}, erase(out), erase(probabilities), options};
  problem.check();
  Impl::run_best(exec, problem);
}

/// The same with a mask added to the scores: `S = scale · q kᵀ + mask`. A mask of −∞ hides a key. The mask is a
/// constant: no gradient flows to it; backward is `standard_attention_backward`, which needs only the
/// probabilities.
///
/// \param exec          the instance
/// \param q             (batch, q_len, q_heads, head_dim), T
/// \param k             (batch, kv_len, kv_heads, head_dim), T
/// \param v             (batch, kv_len, kv_heads, v_head_dim), T
/// \param mask          (batch or 1, q_heads or 1, q_len or 1, kv_len), T; an extent of 1 stands for all
/// \param out           (batch, q_len, q_heads, v_head_dim), T, overwritten
/// \param probabilities (batch, q_heads, q_len, kv_len), T, dense, overwritten; saved for backward
/// \param options       scale, causal, window; they hide keys in addition to the mask
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> M, ViewOf<4> O, ViewOf<4> P>
void standard_attention_masked_forward(const Exec& exec, const Q& q, const K& k, const V& v, const M& mask,
                                       const O& out, const P& probabilities,
                                       const AttentionOptions& options = {}) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, M, O, P>,
                "kformer: Views must be accessible from the execution space");
  const Impl::StandardAttentionForward problem{
      erase(q), erase(k), erase(v), erase(mask), erase(out), erase(probabilities), options};
  problem.check();
  Impl::run_best(exec, problem);
}

/// Bytes of workspace `standard_attention_backward` needs for storage type `T`: one array the size of the
/// probabilities.
template <class T, class Exec>
std::size_t standard_attention_backward_workspace_bytes(const Exec&, std::int64_t batch, std::int64_t q_heads,
                                                        std::int64_t q_len, std::int64_t kv_len) {
  Impl::StandardAttentionBackward problem{};
  problem.q.dtype = problem.probabilities.dtype = dtype_of<T>;
  problem.probabilities.rank = 4;
  problem.probabilities.extent = {batch, q_heads, q_len, kv_len};
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// Gradients of both forwards: `dv = Pᵀ dout`, `dP = dout vᵀ`, `dS = P ∘ (dP − Σ_keys P ∘ dP)`, `dq = scale ·
/// dS k`, `dk = scale · dSᵀ q`; dk and dv sum over the query heads of a group in order. A hidden key gets
/// gradient 0.
///
/// \param exec          the instance
/// \param q             (batch, q_len, q_heads, head_dim), T
/// \param k             (batch, kv_len, kv_heads, head_dim), T
/// \param v             (batch, kv_len, kv_heads, v_head_dim), T
/// \param probabilities (batch, q_heads, q_len, kv_len), T, dense, saved by forward
/// \param dout          (batch, q_len, q_heads, v_head_dim), T
/// \param dq            like q, overwritten
/// \param dk            like k, overwritten
/// \param dv            like v, overwritten
/// \param options       the scale of forward; causal and window are in the probabilities already
/// \param workspace     at least `standard_attention_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> P, ViewOf<4> DO, ViewOf<4> DQ,
          ViewOf<4> DK, ViewOf<4> DV>
void standard_attention_backward(const Exec& exec, const Q& q, const K& k, const V& v, const P& probabilities,
                                 const DO& dout, const DQ& dq, const DK& dk, const DV& dv,
                                 const AttentionOptions& options, const Workspace& workspace) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, P, DO, DQ, DK, DV>,
                "kformer: Views must be accessible from the execution space");
  const Impl::StandardAttentionBackward problem{erase(q),    erase(k),  erase(v),  erase(probabilities),
                                                erase(dout), erase(dq), erase(dk), erase(dv),
                                                options};
  problem.check();
  Impl::run_best(exec, problem, workspace);
}

}  // namespace kformer
