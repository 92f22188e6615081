// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/ops/attention_extras.hpp"
#include "kformer/ops/attention_options.hpp"

/// \file
/// Flash attention (Dao et al., arXiv:2205.14135 and arXiv:2307.08691): attention tile by tile, with memory
/// linear in the sequence, forward and backward.

namespace kformer {

/// Everything the choice of an attention kernel may depend on, besides options and optional operands.
struct AttentionShape {
  DType dtype = DType::f32;     ///< storage type
  std::int64_t batch = 0;       ///< sequences; 1 if sequences are packed
  std::int64_t q_len = 0;       ///< queries per sequence, or of all packed sequences
  std::int64_t kv_len = 0;      ///< keys per sequence, or of all packed sequences
  std::int64_t q_heads = 0;     ///< query heads
  std::int64_t kv_heads = 0;    ///< key and value heads; divides q_heads
  std::int64_t head_dim = 0;    ///< width of q and k
  std::int64_t v_head_dim = 0;  ///< width of v and out
};

namespace Impl {

struct AttentionForward {
  static constexpr const char* op = "attention";
  static constexpr const char* function = "attention_forward";
  TensorRef q, k, v, out, lse;
  AttentionOptions options;
  AttentionExtraRefs extras;
  /// Kernels that need more refuse; enough for any, unless the caller brought a workspace.
  std::size_t workspace_bytes = SIZE_MAX;
  Operands operands() const;
  void check() const;
};

struct AttentionBackward {
  static constexpr const char* op = "attention";
  static constexpr const char* function = "attention_backward";
  TensorRef q, k, v, out, lse, dout, dq, dk, dv;
  AttentionOptions options;
  AttentionExtraRefs extras;
  AttentionExtraGradientRefs gradients;
  Operands operands() const;
  void check() const;
};

/// Problems of a shape that have no memory yet.
AttentionForward planned_attention_forward(const AttentionShape& shape, const AttentionOptions& options,
                                           const AttentionExtraRefs& extras);
AttentionBackward planned_attention_backward(const AttentionShape& shape, const AttentionOptions& options,
                                             const AttentionExtraRefs& extras,
                                             const AttentionExtraGradientRefs& gradients);

/// The lengths of packed sequences, where the host can read them.
/// \throws DimensionMismatch if they do not start at 0, decrease, or do not end at q_len and kv_len
void check_sequence_lengths(const Operands& all, const AttentionExtraRefs& extras, std::int64_t q_len,
                            std::int64_t kv_len);

/// What both directions do once the operands are checked.
template <class Exec, class Problem>
void check_attention(const Problem& problem) {
  problem.check();
  if constexpr (Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible)
    check_sequence_lengths(problem.operands(), problem.extras, problem.q.extent[1], problem.k.extent[1]);
}

}  // namespace Impl

/// Bytes of workspace with which `attention_forward` is fastest. It works with none: few queries against many
/// keys are then not split along the keys. On host spaces the starts of packed sequences are read, if they have
/// memory; without, as many queries as there are count as one sequence.
///
/// \throws DimensionMismatch, NotSupported as `attention_forward` would
template <class Exec>
std::size_t attention_forward_workspace_bytes(const Exec&, const AttentionShape& shape,
                                              const AttentionOptions& options = {},
                                              const AttentionExtras<Exec>& extras = {}) {
  const auto problem = Impl::planned_attention_forward(shape, options, extras.refs());
  problem.check();
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// `S = scale · q kᵀ`, `P = softmax(S)` over the keys a query sees, `out = P v`, `lse = log Σ exp(S)`. Query
/// heads share key/value heads in groups: head `h` reads `h / (q_heads / kv_heads)`. A query that sees no key
/// has out = 0 and lse = −∞. A hidden key or value, NaN included, changes nothing. Options and extras change
/// the scores and hide keys.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param q         (batch, q_len, q_heads, head_dim), T
/// \param k         (batch, kv_len, kv_heads, head_dim), T
/// \param v         (batch, kv_len, kv_heads, v_head_dim), T
/// \param out       (batch, q_len, q_heads, v_head_dim), T, overwritten; saved for backward
/// \param lse       (batch, q_heads, q_len), compute_t<T>, overwritten; saved for backward
/// \param options   scale, causal, window, softcap
/// \param extras    bias, ALiBi slopes, sinks, packed sequences, block mask
/// \param workspace any; see `attention_forward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported if an option is out of range or operands exclude each other
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<3> L>
void attention_forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                       const AttentionOptions& options = {}, const AttentionExtras<Exec>& extras = {},
                       const Workspace& workspace = {}) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, O, L>,
                "kformer: Views must be accessible from the execution space");
  const Impl::AttentionForward problem{erase(q),   erase(k), erase(v),      erase(out),
                                       erase(lse), options,  extras.refs(), workspace.bytes};
  Impl::check_attention<Exec>(problem);
  Impl::run_best(exec, problem, workspace);
}

/// Bytes of workspace `attention_backward` needs with these options and operands, exactly: linear in the length
/// of the sequences.
///
/// \throws DimensionMismatch, NotSupported as `attention_backward` would
template <class Exec>
std::size_t attention_backward_workspace_bytes(const Exec&, const AttentionShape& shape,
                                               const AttentionOptions& options = {},
                                               const AttentionExtras<Exec>& extras = {},
                                               const AttentionExtraGradients<Exec>& gradients = {}) {
  const auto problem = Impl::planned_attention_backward(shape, options, extras.refs(), gradients.refs());
  problem.check();
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// Gradients of `attention_forward`, with P recomputed from lse: `δ = Σ dout ∘ out`, `dP = dout vᵀ`, `dS = P ∘
/// (dP − δ)`, `dq = scale · dS k`, `dk = scale · dSᵀ q`, `dv = Pᵀ dout`, dS times the derivative of the soft
/// cap in dq and dk; dk and dv sum over the query heads of a group in order, without atomics. A hidden key gets
/// gradient 0.
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
/// \param extras    those of forward
/// \param gradients where the gradients of bias and sinks go, if wanted
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
/// \throws NotSupported if an option is out of range or operands exclude each other
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<3> L, ViewOf<4> DO,
          ViewOf<4> DQ, ViewOf<4> DK, ViewOf<4> DV>
void attention_backward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                        const DO& dout, const DQ& dq, const DK& dk, const DV& dv,
                        const AttentionOptions& options, const Workspace& workspace,
                        const AttentionExtras<Exec>& extras = {},
                        const AttentionExtraGradients<Exec>& gradients = {}) {
  static_assert(Impl::all_accessible<Exec, Q, K, V, O, L, DO, DQ, DK, DV>,
                "kformer: Views must be accessible from the execution space");
  const Impl::AttentionBackward problem{erase(q),   erase(k),    erase(v),      erase(out),
                                        erase(lse), erase(dout), erase(dq),     erase(dk),
                                        erase(dv),  options,     extras.refs(), gradients.refs()};
  Impl::check_attention<Exec>(problem);
  Impl::run_best(exec, problem, workspace);
}

}  // namespace kformer
