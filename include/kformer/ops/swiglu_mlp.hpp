// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/swiglu.hpp"

/// \file
/// The feed-forward block of Llama-like models: SwiGLU between its matrix products (Shazeer, arXiv:2002.05202,
/// eq. 6, FFN_SwiGLU).

namespace kformer {

namespace Impl {

/// The operands of the whole block, checked under its name before any of its parts is launched.
struct SwigluMlpForward {
  static constexpr const char* function = "swiglu_mlp_forward";
  TensorRef x, weight_gate_up, weight_down, gate_up, product, y;
  Operands operands() const;
  void check(const Workspace& workspace) const;
};

struct SwigluMlpBackward {
  static constexpr const char* function = "swiglu_mlp_backward";
  TensorRef x, weight_gate_up, weight_down, gate_up, product, dy;
  TensorRef dproduct, dgate_up, dx, dweight_gate_up, dweight_down;
  Operands operands() const;
  void check(const Workspace& workspace) const;
};

}  // namespace Impl

/// The operands of `swiglu_mlp_forward`.
template <AnyView X, AnyView WGU, AnyView WD, AnyView GU, AnyView P, AnyView Y>
struct SwigluMlpForwardOperands {
  X x;                 ///< (rows, hidden), T
  WGU weight_gate_up;  ///< (2 · intermediate, hidden), T; the rows of gate first
  WD weight_down;      ///< (hidden, intermediate), T
  GU gate_up;          ///< (rows, 2 · intermediate), T, overwritten; saved for backward
  /// (rows, intermediate), T, overwritten; saved for backward, or recomputed from `gate_up` with
  /// `swiglu_forward`
  P product;
  Y y;  ///< (rows, hidden), T, overwritten; may be `x` itself
};

/// `gate_up = x · weight_gate_upᵀ`, `product = silu(gate) · up` with gate and up the first and the second half
/// of the columns of `gate_up`, `y = product · weight_downᵀ`.
///
/// \param exec     the instance everything is launched on; nothing is fenced or allocated
/// \param operands the Views, as `SwigluMlpForwardOperands` names them
/// \param workspace as much as `swiglu_mlp_forward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, class... V>
void swiglu_mlp_forward(const Exec& exec, const SwigluMlpForwardOperands<V...>& operands,
                        const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.x)>;
  Impl::SwigluMlpForward{
      Impl::input<Exec, T, 2>(operands.x),           Impl::input<Exec, T, 2>(operands.weight_gate_up),
      Impl::input<Exec, T, 2>(operands.weight_down), Impl::output<Exec, T, 2>(operands.gate_up),
      Impl::output<Exec, T, 2>(operands.product),    Impl::output<Exec, T, 2>(operands.y)}
      .check(workspace);
  const auto& [x, weight_gate_up, weight_down, gate_up, product, y] = operands;
  linear_swiglu_forward(exec, x, weight_gate_up, gate_up, product, {}, workspace);
  linear_forward(exec, product, weight_down, y, {}, workspace);
}

/// The same on the default instance.
template <class... V>
void swiglu_mlp_forward(const SwigluMlpForwardOperands<V...>& operands, const Workspace& workspace = {}) {
  swiglu_mlp_forward(Kokkos::DefaultExecutionSpace(), operands, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for the products of
/// `swiglu_mlp_forward`. None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t swiglu_mlp_forward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// The operands of `swiglu_mlp_backward`.
template <AnyView X, AnyView WGU, AnyView WD, AnyView GU, AnyView P, AnyView DY, AnyView DP, AnyView DGU,
          AnyView DX, AnyView DWGU, AnyView DWD>
struct SwigluMlpBackwardOperands {
  X x;                   ///< (rows, hidden), T, the input of forward
  WGU weight_gate_up;    ///< (2 · intermediate, hidden), T
  WD weight_down;        ///< (hidden, intermediate), T
  GU gate_up;            ///< (rows, 2 · intermediate), T, saved by forward
  P product;             ///< (rows, intermediate), T, saved by forward
  DY dy;                 ///< (rows, hidden), T
  DP dproduct;           ///< (rows, intermediate), T, overwritten; may be `product` itself
  DGU dgate_up;          ///< (rows, 2 · intermediate), T, overwritten; may be `gate_up` itself
  DX dx;                 ///< (rows, hidden), T, overwritten; may be `dy` or `x` itself
  DWGU dweight_gate_up;  ///< (2 · intermediate, hidden), compute_t<T>, accumulated
  DWD dweight_down;      ///< (hidden, intermediate), compute_t<T>, accumulated
};

/// Gradients of `swiglu_mlp_forward`, part by part from the back. The caller gives every buffer, so nothing is
/// allocated and whatever is no longer needed can be overwritten.
///
/// \param exec     the instance
/// \param operands the Views, as `SwigluMlpBackwardOperands` names them
/// \param workspace as much as `swiglu_mlp_backward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, class... V>
void swiglu_mlp_backward(const Exec& exec, const SwigluMlpBackwardOperands<V...>& operands,
                         const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.x)>;
  Impl::SwigluMlpBackward{Impl::input<Exec, T, 2>(operands.x),
                          Impl::input<Exec, T, 2>(operands.weight_gate_up),
                          Impl::input<Exec, T, 2>(operands.weight_down),
                          Impl::input<Exec, T, 2>(operands.gate_up),
                          Impl::input<Exec, T, 2>(operands.product),
                          Impl::input<Exec, T, 2>(operands.dy),
                          Impl::output<Exec, T, 2>(operands.dproduct),
                          Impl::output<Exec, T, 2>(operands.dgate_up),
                          Impl::output<Exec, T, 2>(operands.dx),
                          Impl::output<Exec, compute_t<T>, 2>(operands.dweight_gate_up),
                          Impl::output<Exec, compute_t<T>, 2>(operands.dweight_down)}
      .check(workspace);
  const auto& [x, weight_gate_up, weight_down, gate_up, product, dy, dproduct, dgate_up, dx, dweight_gate_up,
               dweight_down] = operands;
  linear_backward_weight(exec, product, dy, dweight_down, {}, workspace);
  linear_backward_input(exec, weight_down, dy, dproduct, {}, workspace);
  swiglu_backward(exec, Impl::gate_half(gate_up), Impl::up_half(gate_up), dproduct, Impl::gate_half(dgate_up),
                  Impl::up_half(dgate_up));
  linear_backward_weight(exec, x, dgate_up, dweight_gate_up, {}, workspace);
  linear_backward_input(exec, weight_gate_up, dgate_up, dx, {}, workspace);
}

/// The same on the default instance.
template <class... V>
void swiglu_mlp_backward(const SwigluMlpBackwardOperands<V...>& operands, const Workspace& workspace = {}) {
  swiglu_mlp_backward(Kokkos::DefaultExecutionSpace(), operands, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for the products of
/// `swiglu_mlp_backward`. None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t swiglu_mlp_backward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

}  // namespace kformer
