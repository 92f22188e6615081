// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <utility>

#include "kformer/ops/linear.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/swiglu.hpp"

/// \file
/// Linear maps fused with the next block, which processes a tile of the product while the tile is still in the
/// cache. The results are those of the two functions in sequence. There is no fused backward pass: use those of
/// the two functions, with the same saved arrays.

namespace kformer {

/// What `linear_rope_forward` rotates.
struct LinearRopeOptions {
  std::int64_t heads;               ///< number of heads, queries and keys, in the first columns of `y`
  std::int64_t seq_len;             ///< rows of one sequence
  std::int64_t first_position = 0;  ///< position of the first row of every sequence
  RopeLayout layout = RopeLayout::half_split;  ///< which components form a pair
  LinearOptions linear{};                      ///< of the product
};

namespace Impl {

struct LinearSwigluForward {
  static constexpr const char* op = "linear_swiglu";
  static constexpr const char* function = "linear_swiglu_forward";
  TensorRef x, weight, gate_up, product;
  LinearOptions options{};
  Operands operands() const;
  void check() const;
  /// The two parts of the problem.
  LinearForward linear() const { return {x, weight, {}, {}, gate_up, options}; }
  SwigluForward swiglu() const;
};

struct LinearRopeForward {
  static constexpr const char* op = "linear_rope";
  static constexpr const char* function = "linear_rope_forward";
  TensorRef x, weight, bias, y, cos, sin;
  LinearRopeOptions options;
  Operands operands() const;
  void check() const;
  std::int64_t head_dim() const { return 2 * cos.extent[1]; }
  /// The two parts of the problem.
  LinearForward linear() const { return {x, weight, bias, {}, y, options.linear}; }
  RopeForward rope() const;
};

/// The first half of the columns of `gate_up`.
template <class V>
auto gate_half(const V& gate_up) {
  return Kokkos::subview(gate_up, Kokkos::ALL, std::pair<std::size_t, std::size_t>(0, gate_up.extent(1) / 2));
}

/// The second half of the columns of `gate_up`.
template <class V>
auto up_half(const V& gate_up) {
  return Kokkos::subview(gate_up, Kokkos::ALL,
                         std::pair<std::size_t, std::size_t>(gate_up.extent(1) / 2, gate_up.extent(1)));
}

}  // namespace Impl

/// `gate_up = scale · x · weightᵀ` by `linear_forward` and `product = silu(gate) · up` by `swiglu_forward`,
/// gate and up being the first and the second half of the columns of `gate_up` as it is stored.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param x       (rows, in), T
/// \param weight  (2 · intermediate, in), T; the rows of gate first
/// \param gate_up (rows, 2 · intermediate), T, overwritten; what the gradients need
/// \param product (rows, intermediate), T, overwritten; may be either half of `gate_up` itself
/// \param options of the product
/// \param workspace as much as `linear_swiglu_forward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported      if an option is out of its range
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView GU, AnyView P>
void linear_swiglu_forward(const Exec& exec, const X& x, const W& weight, const GU& gate_up, const P& product,
                           const LinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LinearSwigluForward problem{Impl::input<Exec, T, 2>(x), Impl::input<Exec, T, 2>(weight),
                                          Impl::output<Exec, T, 2>(gate_up), Impl::output<Exec, T, 2>(product),
                                          options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView GU, AnyView P>
void linear_swiglu_forward(const X& x, const W& weight, const GU& gate_up, const P& product,
                           const LinearOptions& options = {}, const Workspace& workspace = {}) {
  linear_swiglu_forward(Kokkos::DefaultExecutionSpace(), x, weight, gate_up, product, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for `linear_swiglu_forward`.
/// None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_swiglu_forward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// `y = scale · x · weightᵀ` by `linear_forward`, whose first `options.heads` heads are then rotated as by
/// `rope_forward`: queries and keys of one product, the values after them left alone. A head has twice the
/// columns of `cos`. Rows are tokens, sequence after sequence.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param x       (rows, in), T
/// \param weight  (out, in), T
/// \param cos     (table positions, head_dim / 2), compute_t<T>, of `rope_tables`
/// \param sin     (table positions, head_dim / 2), compute_t<T>
/// \param y       (rows, out), T, overwritten; shares no memory with the inputs
/// \param options what is rotated
/// \param workspace as much as `linear_rope_forward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported      if an option is out of its range
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView C, AnyView S, AnyView Y>
void linear_rope_forward(const Exec& exec, const X& x, const W& weight, const C& cos, const S& sin, const Y& y,
                         const LinearRopeOptions& options, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LinearRopeForward problem{Impl::input<Exec, T, 2>(x),
                                        Impl::input<Exec, T, 2>(weight),
                                        {},
                                        Impl::output<Exec, T, 2>(y),
                                        Impl::input<Exec, compute_t<T>, 2>(cos),
                                        Impl::input<Exec, compute_t<T>, 2>(sin),
                                        options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView C, AnyView S, AnyView Y>
void linear_rope_forward(const X& x, const W& weight, const C& cos, const S& sin, const Y& y,
                         const LinearRopeOptions& options, const Workspace& workspace = {}) {
  linear_rope_forward(Kokkos::DefaultExecutionSpace(), x, weight, cos, sin, y, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for `linear_rope_forward`.
/// None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_rope_forward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// The operands of `linear_bias_rope_forward`.
template <AnyView X, AnyView W, AnyView B, AnyView C, AnyView S, AnyView Y>
struct LinearBiasRopeForwardOperands {
  X x;       ///< (rows, in), T
  W weight;  ///< (out, in), T
  B bias;    ///< (out), T
  C cos;     ///< (table positions, head_dim / 2), compute_t<T>, of `rope_tables`
  S sin;     ///< (table positions, head_dim / 2), compute_t<T>
  Y y;       ///< (rows, out), T, overwritten; shares no memory with the inputs
};

/// The same with a bias that is added before the rotation: `linear_bias_forward`, then `rope_forward`.
///
/// \param exec     the instance
/// \param operands the Views, as `LinearBiasRopeForwardOperands` names them
/// \param options  what is rotated
/// \param workspace as much as `linear_bias_rope_forward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported      if an option is out of its range
template <ExecutionSpace Exec, class... V>
void linear_bias_rope_forward(const Exec& exec, const LinearBiasRopeForwardOperands<V...>& operands,
                              const LinearRopeOptions& options, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.x)>;
  const Impl::LinearRopeForward problem{Impl::input<Exec, T, 2>(operands.x),
                                        Impl::input<Exec, T, 2>(operands.weight),
                                        Impl::input<Exec, T, 1>(operands.bias),
                                        Impl::output<Exec, T, 2>(operands.y),
                                        Impl::input<Exec, compute_t<T>, 2>(operands.cos),
                                        Impl::input<Exec, compute_t<T>, 2>(operands.sin),
                                        options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <class... V>
void linear_bias_rope_forward(const LinearBiasRopeForwardOperands<V...>& operands,
                              const LinearRopeOptions& options, const Workspace& workspace = {}) {
  linear_bias_rope_forward(Kokkos::DefaultExecutionSpace(), operands, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for
/// `linear_bias_rope_forward`. None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_bias_rope_forward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

}  // namespace kformer
