// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/ops/attention_extras.hpp"
#include "kformer/ops/attention_options.hpp"
#include "kformer/ops/impl/attention_calls.hpp"

/// \file
/// Flash attention (Dao et al., arXiv:2205.14135 and arXiv:2307.08691): attention tile by tile, with memory
/// linear in the sequence, forward and backward.

namespace kformer {

/// Everything that determines the choice of an attention kernel, besides options and optional operands.
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

/// The operands of `attention_backward`.
template <AnyView Q, AnyView K, AnyView V, AnyView O, AnyView L, AnyView DO, AnyView DQ, AnyView DK, AnyView DV>
struct AttentionBackwardOperands {
  Q q;      ///< (batch, q_len, q_heads, head_dim), T
  K k;      ///< (batch, kv_len, kv_heads, head_dim), T
  V v;      ///< (batch, kv_len, kv_heads, v_head_dim), T
  O out;    ///< (batch, q_len, q_heads, v_head_dim), T, saved by forward
  L lse;    ///< (batch, q_heads, q_len), compute_t<T>, saved by forward
  DO dout;  ///< like out, T
  DQ dq;    ///< like q, overwritten
  DK dk;    ///< like k, overwritten
  DV dv;    ///< like v, overwritten
};

namespace Impl {

struct AttentionForward {
  static constexpr const char* op = "attention";
  static constexpr const char* function = "attention_forward";
  TensorRef q, k, v, out, lse;
  AttentionOptions options;
  AttentionExtraRefs extras;
  /// Kernels that need more refuse; by default enough for any kernel.
  std::size_t workspace_bytes = SIZE_MAX;
  /// For kernels that `attention_forward` with a functor lists; the others never see one.
  const AttentionCalls* functor = nullptr;
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
  const AttentionCalls* functor = nullptr;  ///< as of AttentionForward
  Operands operands() const;
  void check() const;
};

/// Problems of a shape without memory.
AttentionForward planned_attention_forward(const AttentionShape& shape, const AttentionOptions& options,
                                           const AttentionExtraRefs& extras);
AttentionBackward planned_attention_backward(const AttentionShape& shape, const AttentionOptions& options,
                                             const AttentionExtraRefs& extras,
                                             const AttentionExtraGradientRefs& gradients);

/// Where packed sequences begin, and the end of the last, in memory that the host can read.
/// \throws DimensionMismatch if they do not start at 0, decrease, or do not end at `total`
void check_sequence_starts(const Operands& all, const char* role, const TensorRef& starts, std::int64_t total);

/// The lengths of packed sequences, where the host can read them.
/// \throws DimensionMismatch if they do not start at 0, decrease, or do not end at q_len and kv_len
void check_sequence_lengths(const Operands& all, const AttentionExtraRefs& extras, std::int64_t q_len,
                            std::int64_t kv_len);

/// The operands of `attention_forward`, checked at compile time.
template <class Exec, class Q, class K, class V, class O, class L>
AttentionForward attention_forward_problem(const Q& q, const K& k, const V& v, const O& out, const L& lse,
                                           const AttentionOptions& options, const AttentionExtraRefs& extras,
                                           const Workspace& workspace) {
  using T = scalar_t<Q>;
  return {input<Exec, T, 4>(q),
          input<Exec, T, 4>(k),
          input<Exec, T, 4>(v),
          output<Exec, T, 4>(out),
          output<Exec, compute_t<T>, 3>(lse),
          options,
          extras,
          workspace.bytes};
}

/// The operands of `attention_backward`, checked at compile time.
template <class Exec, class... V>
AttentionBackward attention_backward_problem(const AttentionBackwardOperands<V...>& operands,
                                             const AttentionOptions& options, const AttentionExtraRefs& extras,
                                             const AttentionExtraGradientRefs& gradients) {
  using T = scalar_t<decltype(operands.q)>;
  return {input<Exec, T, 4>(operands.q),
          input<Exec, T, 4>(operands.k),
          input<Exec, T, 4>(operands.v),
          input<Exec, T, 4>(operands.out),
          input<Exec, compute_t<T>, 3>(operands.lse),
          input<Exec, T, 4>(operands.dout),
          output<Exec, T, 4>(operands.dq),
          output<Exec, T, 4>(operands.dk),
          output<Exec, T, 4>(operands.dv),
          options,
          extras,
          gradients};
}

/// The run-time checks of a call.
template <class Exec, class Problem>
void check_attention(const Problem& problem) {
  problem.check();
  problem.operands().require_addresses();
  if constexpr (is_host_space<Exec>)
    if (problem.extras.cu_seqlens_q.present())
      check_sequence_lengths(problem.operands(), problem.extras, problem.q.extent[1], problem.k.extent[1]);
}

/// Shared by both directions: check the problem, then run.
template <class Exec, class Problem>
void call_attention(const Exec& exec, const Problem& problem, const Workspace& workspace) {
  check_attention<Exec>(problem);
  run_best(exec, problem, workspace);
}

}  // namespace Impl

/// Bytes of workspace with which `attention_forward` is fastest. It also works without: few queries against
/// many keys are then not split along the keys. On host spaces it reads the starts of packed sequences, if they
/// have memory; otherwise it takes all queries for one sequence.
///
/// \throws DimensionMismatch as `attention_forward` would
/// \throws NotSupported      as `attention_forward` would
template <ExecutionSpace Exec>
std::size_t attention_forward_workspace_bytes(const Exec&, const AttentionShape& shape,
                                              const AttentionOptions& options = {},
                                              const AttentionExtras<Exec>& extras = {}) {
  const auto problem = Impl::planned_attention_forward(shape, options, extras.refs());
  problem.check();
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// The same on the default instance.
inline std::size_t attention_forward_workspace_bytes(
    const AttentionShape& shape, const AttentionOptions& options = {},
    const AttentionExtras<Kokkos::DefaultExecutionSpace>& extras = {}) {
  return attention_forward_workspace_bytes(Kokkos::DefaultExecutionSpace(), shape, options, extras);
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
/// \param options   scale, causal, window, softcap, compute, batch_invariant
/// \param extras    bias, ALiBi slopes, sinks, packed sequences, block mask
/// \param workspace of any size, or none; see `attention_forward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is not aligned
/// \throws NotSupported if an option is out of range or operands cannot be combined
template <ExecutionSpace Exec, AnyView Q, AnyView K, AnyView V, AnyView O, AnyView L>
void attention_forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                       const AttentionOptions& options = {},
                       const std::type_identity_t<AttentionExtras<Exec>>& extras = {},
                       const Workspace& workspace = {}) {
  const auto problem =
      Impl::attention_forward_problem<Exec>(q, k, v, out, lse, options, extras.refs(), workspace);
  Impl::call_attention(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView Q, AnyView K, AnyView V, AnyView O, AnyView L>
void attention_forward(const Q& q, const K& k, const V& v, const O& out, const L& lse,
                       const AttentionOptions& options = {},
                       const AttentionExtras<Kokkos::DefaultExecutionSpace>& extras = {},
                       const Workspace& workspace = {}) {
  attention_forward(Kokkos::DefaultExecutionSpace(), q, k, v, out, lse, options, extras, workspace);
}

/// The exact bytes of workspace that `attention_backward` needs with these options and operands: linear in the
/// length of the sequences.
///
/// \throws DimensionMismatch as `attention_backward` would
/// \throws NotSupported      as `attention_backward` would
template <ExecutionSpace Exec>
std::size_t attention_backward_workspace_bytes(const Exec&, const AttentionShape& shape,
                                               const AttentionOptions& options = {},
                                               const AttentionExtras<Exec>& extras = {},
                                               const AttentionExtraGradients<Exec>& gradients = {}) {
  const auto problem = Impl::planned_attention_backward(shape, options, extras.refs(), gradients.refs());
  problem.check();
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// The same on the default instance.
inline std::size_t attention_backward_workspace_bytes(
    const AttentionShape& shape, const AttentionOptions& options = {},
    const AttentionExtras<Kokkos::DefaultExecutionSpace>& extras = {},
    const AttentionExtraGradients<Kokkos::DefaultExecutionSpace>& gradients = {}) {
  return attention_backward_workspace_bytes(Kokkos::DefaultExecutionSpace(), shape, options, extras, gradients);
}

/// Gradients of `attention_forward`, with P recomputed from lse: `δ = Σ dout ∘ out`, `dP = dout vᵀ`, `dS = P ∘
/// (dP − δ)`, `dq = scale · dS k`, `dk = scale · dSᵀ q`, `dv = Pᵀ dout`, dS times the derivative of the soft
/// cap in dq and dk; dk and dv sum over the query heads of a group in order, without atomics. A hidden key gets
/// gradient 0.
///
/// \param exec      the instance
/// \param operands  the Views, as `AttentionBackwardOperands` names them
/// \param options   those of forward
/// \param extras    those of forward
/// \param gradients outputs for the gradients of bias and sinks, if wanted
/// \param workspace at least `attention_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if an option is out of range or operands cannot be combined
template <ExecutionSpace Exec, class... V>
void attention_backward(const Exec& exec, const AttentionBackwardOperands<V...>& operands,
                        const AttentionOptions& options = {},
                        const std::type_identity_t<AttentionExtras<Exec>>& extras = {},
                        const std::type_identity_t<AttentionExtraGradients<Exec>>& gradients = {},
                        const Workspace& workspace = {}) {
  const auto problem =
      Impl::attention_backward_problem<Exec>(operands, options, extras.refs(), gradients.refs());
  Impl::call_attention(exec, problem, workspace);
}

/// The same on the default instance.
template <class... V>
void attention_backward(const AttentionBackwardOperands<V...>& operands, const AttentionOptions& options = {},
                        const AttentionExtras<Kokkos::DefaultExecutionSpace>& extras = {},
                        const AttentionExtraGradients<Kokkos::DefaultExecutionSpace>& gradients = {},
                        const Workspace& workspace = {}) {
  attention_backward(Kokkos::DefaultExecutionSpace(), operands, options, extras, gradients, workspace);
}

}  // namespace kformer
