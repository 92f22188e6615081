// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// The gated activation SwiGLU (Shazeer, arXiv:2002.05202, eq. 5): `silu(gate) · up`.
/// With its matrix products it is `swiglu_mlp_forward` (kformer/ops/swiglu_mlp.hpp).

namespace kformer {

namespace Impl {

struct SwigluForward {
  static constexpr const char* op = "swiglu";
  static constexpr const char* function = "swiglu_forward";
  TensorRef gate, up, y;
  Operands operands() const;
  void check() const;
};

struct SwigluBackward {
  static constexpr const char* op = "swiglu";
  static constexpr const char* function = "swiglu_backward";
  TensorRef gate, up, dy, dgate, dup;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// `y = silu(gate) · up`, elementwise, with `silu(g) = g · σ(g)`, `σ(g) = 1 / (1 + e^(−g))`. Gates of any size
/// are safe; at ±∞ `silu` takes its limits 0 and ∞. Below g = −86, where σ(g) < 5e-38, kernels may replace
/// σ(g) by 0.
///
/// \param exec the instance everything is launched on; nothing is fenced or allocated
/// \param gate (rows, hidden), T
/// \param up   (rows, hidden), T
/// \param y    (rows, hidden), T, overwritten; may be `gate` or `up` itself
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView G, AnyView U, AnyView Y>
void swiglu_forward(const Exec& exec, const G& gate, const U& up, const Y& y) {
  using T = Impl::scalar_t<G>;
  const Impl::SwigluForward problem{Impl::input<Exec, T, 2>(gate), Impl::input<Exec, T, 2>(up),
                                    Impl::output<Exec, T, 2>(y)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView G, AnyView U, AnyView Y>
void swiglu_forward(const G& gate, const U& up, const Y& y) {
  swiglu_forward(Kokkos::DefaultExecutionSpace(), gate, up, y);
}

/// Gradients of `swiglu_forward`: `dup = dy · silu(gate)`, `dgate = dy · up · silu′(gate)` with
/// `silu′(g) = σ(g) · (1 + g · (1 − σ(g)))`. Nothing but the inputs of forward is needed.
///
/// Each of `dgate` and `dup` may be any one of `gate`, `up` and `dy` itself (the same View), but not both the
/// same.
///
/// \param exec  the instance
/// \param gate  (rows, hidden), T, the input of forward
/// \param up    (rows, hidden), T, the input of forward
/// \param dy    (rows, hidden), T
/// \param dgate (rows, hidden), T, overwritten
/// \param dup   (rows, hidden), T, overwritten
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView G, AnyView U, AnyView DY, AnyView DG, AnyView DU>
void swiglu_backward(const Exec& exec, const G& gate, const U& up, const DY& dy, const DG& dgate,
                     const DU& dup) {
  using T = Impl::scalar_t<G>;
  const Impl::SwigluBackward problem{Impl::input<Exec, T, 2>(gate), Impl::input<Exec, T, 2>(up),
                                     Impl::input<Exec, T, 2>(dy), Impl::output<Exec, T, 2>(dgate),
                                     Impl::output<Exec, T, 2>(dup)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView G, AnyView U, AnyView DY, AnyView DG, AnyView DU>
void swiglu_backward(const G& gate, const U& up, const DY& dy, const DG& dgate, const DU& dup) {
  swiglu_backward(Kokkos::DefaultExecutionSpace(), gate, up, dy, dgate, dup);
}

}  // namespace kformer
