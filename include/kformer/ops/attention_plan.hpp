// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention.hpp"

/// \file
/// Flash attention whose kernels are chosen once and reused, by all layers of a model for instance.

namespace kformer {

/// Attention of one shape, without optional operands. Owns no instance and no memory: it may be copied, and
/// used by several threads at once.
template <class Exec>
class AttentionPlan {
 public:
  /// Chooses the forward and the backward kernel, as `attention_forward` (given the workspace it asks for) and
  /// `attention_backward` would.
  ///
  /// \param shape   extents and storage type of all calls to come
  /// \param options scale, causal, window, softcap of all calls to come
  /// \throws DimensionMismatch if the shape contradicts itself
  /// \throws NotSupported if an option is out of range or no kernel accepts the shape
  explicit AttentionPlan(const AttentionShape& shape, const AttentionOptions& options = {})
      : m_shape(shape), m_options(options) {
    const auto backward = Impl::planned_attention_backward(shape, options, {}, {});
    backward.check();
    const auto forward = Impl::planned_attention_forward(shape, options, {});
    m_forward = &choose<Impl::AttentionForward, Exec>(kernels<Impl::AttentionForward, Exec>(), forward);
    m_backward = &choose<Impl::AttentionBackward, Exec>(kernels<Impl::AttentionBackward, Exec>(), backward);
    m_forward_workspace_bytes = m_forward->workspace_bytes(forward);
    m_backward_workspace_bytes = m_backward->workspace_bytes(backward);
  }

  /// `attention_forward` with the kernel and the options of the plan.
  /// \throws DimensionMismatch if the operands do not have the shape of the plan, or the workspace is too small
  template <AnyView Q, AnyView K, AnyView V, AnyView O, AnyView L>
  void forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
               const Workspace& workspace = {}) const {
    const auto problem = Impl::attention_forward_problem<Exec>(q, k, v, out, lse, m_options, {}, workspace);
    check(problem);
    problem.operands().require_workspace(workspace, m_forward_workspace_bytes);
    m_forward->run(exec, problem, workspace);
  }

  /// `attention_backward` with the kernel and the options of the plan.
  /// \throws DimensionMismatch if the operands do not have the shape of the plan, or the workspace is too small
  template <class... V>
  void backward(const Exec& exec, const AttentionBackwardOperands<V...>& operands,
                const Workspace& workspace = {}) const {
    const auto problem = Impl::attention_backward_problem<Exec>(operands, m_options, {}, {});
    check(problem);
    problem.operands().require_workspace(workspace, m_backward_workspace_bytes);
    m_backward->run(exec, problem, workspace);
  }

  /// What `forward` needs, exactly; 0 unless few queries meet many keys.
  std::size_t forward_workspace_bytes() const { return m_forward_workspace_bytes; }
  /// What `backward` needs, exactly.
  std::size_t backward_workspace_bytes() const { return m_backward_workspace_bytes; }
  /// The name of the chosen forward kernel.
  const char* forward_kernel() const { return m_forward->name; }
  /// The name of the chosen backward kernel.
  const char* backward_kernel() const { return m_backward->name; }
  /// The shape of the plan.
  const AttentionShape& shape() const { return m_shape; }
  /// The options of the plan.
  const AttentionOptions& options() const { return m_options; }

 private:
  template <class Problem>
  void check(const Problem& problem) const {
    const auto expected = Impl::planned_attention_forward(m_shape, m_options, {});
    const Operands all = problem.operands();
    all.require_dtype("q", m_shape.dtype)
        .require_extents(problem.q.same_extents(expected.q) && problem.k.same_extents(expected.k) &&
                             problem.v.same_extents(expected.v),
                         "the shape of the plan: " + expected.operands().describe());
    problem.check();
  }

  AttentionShape m_shape;
  AttentionOptions m_options;
  const Kernel<Impl::AttentionForward, Exec>* m_forward;
  const Kernel<Impl::AttentionBackward, Exec>* m_backward;
  std::size_t m_forward_workspace_bytes, m_backward_workspace_bytes;
};

}  // namespace kformer
