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
///                      softmax in their place; saved for backward
/// \param options       scale, causal, window
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if an option is out of range, or `softcap` or `batch_invariant` is set, which only flash
///         attention has
template <ExecutionSpace Exec, AnyView Q, AnyView K, AnyView V, AnyView O, AnyView P>
void standard_attention_forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out,
                                const P& probabilities, const AttentionOptions& options = {}) {
  using T = Impl::scalar_t<Q>;
  const Impl::StandardAttentionForward problem{Impl::input<Exec, T, 4>(q),
                                               Impl::input<Exec, T, 4>(k),
                                               Impl::input<Exec, T, 4>(v),
                                               {},
                                               Impl::output<Exec, T, 4>(out),
                                               Impl::output<Exec, T, 4>(probabilities),
                                               options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView Q, AnyView K, AnyView V, AnyView O, AnyView P>
void standard_attention_forward(const Q& q, const K& k, const V& v, const O& out, const P& probabilities,
                                const AttentionOptions& options = {}) {
  standard_attention_forward(Kokkos::DefaultExecutionSpace(), q, k, v, out, probabilities, options);
}

/// The operands of `standard_attention_masked_forward`.
template <AnyView Q, AnyView K, AnyView V, AnyView M, AnyView O, AnyView P>
struct StandardAttentionMaskedForwardOperands {
  Q q;  ///< (batch, q_len, q_heads, head_dim), T
  K k;  ///< (batch, kv_len, kv_heads, head_dim), T
  V v;  ///< (batch, kv_len, kv_heads, v_head_dim), T
  /// (batch or 1, q_heads or 1, q_len or 1, kv_len), T; an extent of 1 broadcasts
  M mask;
  O out;            ///< (batch, q_len, q_heads, v_head_dim), T, overwritten
  P probabilities;  ///< (batch, q_heads, q_len, kv_len), T, dense, overwritten; saved for backward
};

/// The same with a mask added to the scores: `S = scale · q kᵀ + mask`. A mask of −∞ hides a key. The mask is a
/// constant: no gradient flows to it; backward is `standard_attention_backward`, which needs only the
/// probabilities.
///
/// \param exec     the instance
/// \param operands the Views, as `StandardAttentionMaskedForwardOperands` names them
/// \param options  scale, causal, window; they hide keys in addition to the mask
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if an option is out of range, or `softcap` or `batch_invariant` is set, which only flash
///         attention has
template <ExecutionSpace Exec, class... V>
void standard_attention_masked_forward(const Exec& exec,
                                       const StandardAttentionMaskedForwardOperands<V...>& operands,
                                       const AttentionOptions& options = {}) {
  using T = Impl::scalar_t<decltype(operands.q)>;
  const Impl::StandardAttentionForward problem{Impl::input<Exec, T, 4>(operands.q),
                                               Impl::input<Exec, T, 4>(operands.k),
                                               Impl::input<Exec, T, 4>(operands.v),
                                               Impl::input<Exec, T, 4>(operands.mask),
                                               Impl::output<Exec, T, 4>(operands.out),
                                               Impl::output<Exec, T, 4>(operands.probabilities),
                                               options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class... V>
void standard_attention_masked_forward(const StandardAttentionMaskedForwardOperands<V...>& operands,
                                       const AttentionOptions& options = {}) {
  standard_attention_masked_forward(Kokkos::DefaultExecutionSpace(), operands, options);
}

/// Bytes of workspace `standard_attention_backward` needs for storage type `T`: one array the size of the
/// probabilities.
template <Scalar T, ExecutionSpace Exec>
std::size_t standard_attention_backward_workspace_bytes(const Exec&, std::int64_t batch, std::int64_t q_heads,
                                                        std::int64_t q_len, std::int64_t kv_len) {
  Impl::StandardAttentionBackward problem{};
  problem.q.dtype = problem.probabilities.dtype = dtype_of<T>;
  problem.probabilities.rank = 4;
  problem.probabilities.extent = {batch, q_heads, q_len, kv_len};
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// The same on the default instance.
template <Scalar T>
std::size_t standard_attention_backward_workspace_bytes(std::int64_t batch, std::int64_t q_heads,
                                                        std::int64_t q_len, std::int64_t kv_len) {
  return standard_attention_backward_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), batch, q_heads, q_len,
                                                        kv_len);
}

/// The operands of `standard_attention_backward`.
template <AnyView Q, AnyView K, AnyView V, AnyView P, AnyView DO, AnyView DQ, AnyView DK, AnyView DV>
struct StandardAttentionBackwardOperands {
  Q q;              ///< (batch, q_len, q_heads, head_dim), T
  K k;              ///< (batch, kv_len, kv_heads, head_dim), T
  V v;              ///< (batch, kv_len, kv_heads, v_head_dim), T
  P probabilities;  ///< (batch, q_heads, q_len, kv_len), T, dense, saved by forward
  DO dout;          ///< (batch, q_len, q_heads, v_head_dim), T
  DQ dq;            ///< like q, overwritten
  DK dk;            ///< like k, overwritten
  DV dv;            ///< like v, overwritten
};

/// Gradients of both forwards: `dv = Pᵀ dout`, `dP = dout vᵀ`, `dS = P ∘ (dP − Σ_keys P ∘ dP)`, `dq = scale ·
/// dS k`, `dk = scale · dSᵀ q`; dk and dv sum over the query heads of a group in order. A hidden key gets
/// gradient 0.
///
/// \param exec      the instance
/// \param operands  the Views, as `StandardAttentionBackwardOperands` names them
/// \param options   the scale of forward; causal and window are in the probabilities already
/// \param workspace at least `standard_attention_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if an option is out of range, or `softcap` or `batch_invariant` is set, which only flash
///         attention has
template <ExecutionSpace Exec, class... V>
void standard_attention_backward(const Exec& exec, const StandardAttentionBackwardOperands<V...>& operands,
                                 const AttentionOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.q)>;
  const Impl::StandardAttentionBackward problem{Impl::input<Exec, T, 4>(operands.q),
                                                Impl::input<Exec, T, 4>(operands.k),
                                                Impl::input<Exec, T, 4>(operands.v),
                                                Impl::input<Exec, T, 4>(operands.probabilities),
                                                Impl::input<Exec, T, 4>(operands.dout),
                                                Impl::output<Exec, T, 4>(operands.dq),
                                                Impl::output<Exec, T, 4>(operands.dk),
                                                Impl::output<Exec, T, 4>(operands.dv),
                                                options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <class... V>
void standard_attention_backward(const StandardAttentionBackwardOperands<V...>& operands,
                                 const AttentionOptions& options = {}, const Workspace& workspace = {}) {
  standard_attention_backward(Kokkos::DefaultExecutionSpace(), operands, options, workspace);
}

}  // namespace kformer
