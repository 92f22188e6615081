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
  void check() const;
};

struct SwigluMlpBackward {
  static constexpr const char* function = "swiglu_mlp_backward";
  TensorRef x, weight_gate_up, weight_down, gate_up, product, dy;
  TensorRef dproduct, dgate_up, dx, dweight_gate_up, dweight_down;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// `gate_up = x · weight_gate_upᵀ`, `product = silu(gate) · up` with gate and up the first and the second half
/// of the columns of `gate_up`, `y = product · weight_downᵀ`.
///
/// \param exec           the instance everything is launched on; nothing is fenced or allocated
/// \param x              (rows, hidden), T
/// \param weight_gate_up (2 · intermediate, hidden), T; the rows of gate first
/// \param weight_down    (hidden, intermediate), T
/// \param gate_up        (rows, 2 · intermediate), T, overwritten; saved for backward
/// \param product        (rows, intermediate), T, overwritten; saved for backward, or had again from `gate_up`
/// by
///                       `swiglu_forward`
/// \param y              (rows, hidden), T, overwritten; may be `x` itself
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<2> X, ViewOf<2> WGU, ViewOf<2> WD, ViewOf<2> GU, ViewOf<2> P, ViewOf<2> Y>
void swiglu_mlp_forward(const Exec& exec, const X& x, const WGU& weight_gate_up, const WD& weight_down,
                        const GU& gate_up, const P& product, const Y& y) {
  Impl::SwigluMlpForward{erase(x),       erase(weight_gate_up), erase(weight_down),
                         erase(gate_up), erase(product),        erase(y)}
      .check();
  linear_swiglu_forward(exec, x, weight_gate_up, gate_up, product);
  linear_forward(exec, product, weight_down, y);
}

/// Gradients of `swiglu_mlp_forward`, part by part from the back. The caller gives every buffer, so nothing is
/// allocated and whatever is no longer needed can be written over.
///
/// \param exec            the instance
/// \param x               (rows, hidden), T, the input of forward
/// \param weight_gate_up  (2 · intermediate, hidden), T
/// \param weight_down     (hidden, intermediate), T
/// \param gate_up         (rows, 2 · intermediate), T, saved by forward
/// \param product         (rows, intermediate), T, saved by forward
/// \param dy              (rows, hidden), T
/// \param dproduct        (rows, intermediate), T, overwritten; may be `product` itself
/// \param dgate_up        (rows, 2 · intermediate), T, overwritten; may be `gate_up` itself
/// \param dx              (rows, hidden), T, overwritten; may be `dy` or `x` itself
/// \param dweight_gate_up (2 · intermediate, hidden), compute_t<T>, accumulated
/// \param dweight_down    (hidden, intermediate), compute_t<T>, accumulated
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<2> X, ViewOf<2> WGU, ViewOf<2> WD, ViewOf<2> GU, ViewOf<2> P, ViewOf<2> DY,
          ViewOf<2> DP, ViewOf<2> DGU, ViewOf<2> DX, ViewOf<2> DWGU, ViewOf<2> DWD>
void swiglu_mlp_backward(const Exec& exec, const X& x, const WGU& weight_gate_up, const WD& weight_down,
                         const GU& gate_up, const P& product, const DY& dy, const DP& dproduct,
                         const DGU& dgate_up, const DX& dx, const DWGU& dweight_gate_up,
                         const DWD& dweight_down) {
  Impl::SwigluMlpBackward{
      erase(x),           erase(weight_gate_up), erase(weight_down), erase(gate_up), erase(product),
      erase(dy),          erase(dproduct),       erase(dgate_up),    erase(dx),      erase(dweight_gate_up),
      erase(dweight_down)}
      .check();
  linear_backward_weight(exec, product, dy, dweight_down);
  linear_backward_input(exec, weight_down, dy, dproduct);
  swiglu_backward(exec, Impl::gate_half(gate_up), Impl::up_half(gate_up), dproduct, Impl::gate_half(dgate_up),
                  Impl::up_half(dgate_up));
  linear_backward_weight(exec, x, dgate_up, dweight_gate_up);
  linear_backward_input(exec, weight_gate_up, dgate_up, dx);
}

}  // namespace kformer
