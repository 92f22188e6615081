// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "kformer/ops/attention.hpp"

/// \file
/// Flash attention whose kernels are chosen once and reused, by all layers of a model for instance.

namespace kformer {

/// Everything the choice of an attention kernel may depend on, besides the options.
struct AttentionShape {
  DType dtype = DType::f32;     ///< storage type
  std::int64_t batch = 0;       ///< sequences
  std::int64_t q_len = 0;       ///< queries per sequence
  std::int64_t kv_len = 0;      ///< keys per sequence
  std::int64_t q_heads = 0;     ///< query heads
  std::int64_t kv_heads = 0;    ///< key and value heads; divides q_heads
  std::int64_t head_dim = 0;    ///< width of q and k
  std::int64_t v_head_dim = 0;  ///< width of v and out
};

/// Attention of one shape, without an additive mask. Owns no instance and no memory: it may be copied, and used
/// by several threads at once.
template <class Exec>
class AttentionPlan {
 public:
  /// Chooses the forward and the backward kernel, as `attention_forward` and `attention_backward` would.
  ///
  /// \param shape   extents and storage type of all calls to come
  /// \param options scale, causal, window of all calls to come
  /// \throws DimensionMismatch if the shape contradicts itself
  /// \throws NotSupported if an option is out of range or no kernel accepts the shape
  explicit AttentionPlan(const AttentionShape& shape, const AttentionOptions& options = {})
      : m_shape(shape), m_options(options) {
    const Impl::AttentionBackward problem = planned();
    problem.check();
    m_forward =
        &choose<Impl::AttentionForward, Exec>(kernels<Impl::AttentionForward, Exec>(), forward_of(problem));
    m_backward = &choose<Impl::AttentionBackward, Exec>(kernels<Impl::AttentionBackward, Exec>(), problem);
    m_workspace_bytes = m_backward->workspace_bytes(problem);
  }

  /// `attention_forward` with the kernel and the options of the plan.
  /// \throws DimensionMismatch if the operands do not have the shape of the plan
  template <ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<3> L>
  void forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse) const {
    static_assert(Impl::all_accessible<Exec, Q, K, V, O, L>,
                  "kformer: Views must be accessible from the execution space");
    const Impl::AttentionForward problem{erase(q), erase(k), erase(v), {}, erase(out), erase(lse), m_options};
    check(problem);
    m_forward->run(exec, problem, {});
  }

  /// `attention_backward` with the kernel and the options of the plan.
  /// \throws DimensionMismatch if the operands do not have the shape of the plan, or the workspace is too small
  template <ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<3> L, ViewOf<4> DO, ViewOf<4> DQ,
            ViewOf<4> DK, ViewOf<4> DV>
  void backward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                const DO& dout, const DQ& dq, const DK& dk, const DV& dv, const Workspace& workspace) const {
    static_assert(Impl::all_accessible<Exec, Q, K, V, O, L, DO, DQ, DK, DV>,
                  "kformer: Views must be accessible from the execution space");
    const Impl::AttentionBackward problem{erase(q),    erase(k),  erase(v),  {},        erase(out), erase(lse),
                                          erase(dout), erase(dq), erase(dk), erase(dv), m_options};
    check(problem);
    problem.operands().require_workspace(workspace.bytes, m_workspace_bytes);
    m_backward->run(exec, problem, workspace);
  }

  /// What `backward` needs, exactly; `forward` needs none.
  std::size_t workspace_bytes() const { return m_workspace_bytes; }
  /// The name of the chosen forward kernel.
  const char* forward_kernel() const { return m_forward->name; }
  /// The name of the chosen backward kernel.
  const char* backward_kernel() const { return m_backward->name; }
  /// The shape of the plan.
  const AttentionShape& shape() const { return m_shape; }
  /// The options of the plan.
  const AttentionOptions& options() const { return m_options; }

 private:
  /// A problem of this shape that has no memory yet.
  Impl::AttentionBackward planned() const {
    const auto& s = m_shape;
    const auto q = packed<4>(s.dtype, {s.batch, s.q_len, s.q_heads, s.head_dim});
    const auto k = packed<4>(s.dtype, {s.batch, s.kv_len, s.kv_heads, s.head_dim});
    const auto v = packed<4>(s.dtype, {s.batch, s.kv_len, s.kv_heads, s.v_head_dim});
    const auto out = packed<4>(s.dtype, {s.batch, s.q_len, s.q_heads, s.v_head_dim});
    const auto lse = packed<3>(compute_dtype(s.dtype), {s.batch, s.q_heads, s.q_len});
    return {q, k, v, {}, out, lse, out, q, k, v, m_options};
  }
  static Impl::AttentionForward forward_of(const Impl::AttentionBackward& p) {
    return {p.q, p.k, p.v, {}, p.out, p.lse, p.options};
  }
  template <int Rank>
  static TensorRef packed(DType dtype, const std::array<std::int64_t, Rank>& extent) {
    TensorRef ref;
    ref.dtype = dtype;
    ref.rank = Rank;
    std::int64_t stride = 1;
    for (int r = Rank - 1; r >= 0; --r) {
      ref.extent[r] = extent[r];
      ref.stride[r] = stride;
      stride *= extent[r];
    }
    return ref;
  }

  template <class Problem>
  void check(const Problem& problem) const {
    const Impl::AttentionBackward expected = planned();
    const Operands all = problem.operands();
    all.require_dtype("q", m_shape.dtype)
        .require_extents(problem.q.same_extents(expected.q) && problem.k.same_extents(expected.k) &&
                             problem.v.same_extents(expected.v),
                         "the shape of the plan: " + forward_of(expected).operands().describe());
    problem.check();
  }

  AttentionShape m_shape;
  AttentionOptions m_options;
  const Kernel<Impl::AttentionForward, Exec>* m_forward;
  const Kernel<Impl::AttentionBackward, Exec>* m_backward;
  std::size_t m_workspace_bytes;
};

}  // namespace kformer
