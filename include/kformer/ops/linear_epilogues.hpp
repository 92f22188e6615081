// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <utility>

#include "kformer/ops/linear.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/swiglu.hpp"

/// \file
/// Linear maps with the block that follows them: what a tile of the product becomes next is computed while the
/// tile is still in the cache. The results are those of the two functions one after the other. Gradients are
/// those of the two parts, from the same saved arrays.

namespace kformer {

/// What `linear_rope_forward` rotates.
struct LinearRopeOptions {
  std::int64_t heads;                          ///< the first columns of `y` are as many heads, queries and keys
  std::int64_t seq_len;                        ///< rows of one sequence
  std::int64_t first_position = 0;             ///< position of the first row of every sequence
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
  /// Its parts.
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
  /// Its parts.
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
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported      if an option is out of its range
template <class Exec, ViewOf<2> X, ViewOf<2> W, ViewOf<2> GU, ViewOf<2> P>
void linear_swiglu_forward(const Exec& exec, const X& x, const W& weight, const GU& gate_up, const P& product,
                           LinearOptions options = {}) {
  static_assert(Impl::all_accessible<Exec, X, W, GU, P>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearSwigluForward problem{erase(x), erase(weight), erase(gate_up), erase(product), options};
  problem.check();
  Impl::run_best(exec, problem, options.workspace);
}

/// `y = scale · x · weightᵀ` by `linear_forward`, whose first `options.heads` heads are then rotated as by
/// `rope_forward`: queries and keys of one product, the values after them left alone. A head has twice the
/// columns of `cos`. Rows are tokens, sequence after sequence.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param x       (rows, in), T
/// \param weight  (out, in), T
/// \param y       (rows, out), T, overwritten; shares no memory with the inputs
/// \param cos     (table positions, head_dim / 2), compute_t<T>, of `rope_tables`
/// \param sin     (table positions, head_dim / 2), compute_t<T>
/// \param options what is rotated
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported      if an option is out of its range
template <class Exec, ViewOf<2> X, ViewOf<2> W, ViewOf<2> Y, ViewOf<2> C, ViewOf<2> S>
void linear_rope_forward(const Exec& exec, const X& x, const W& weight, const Y& y, const C& cos, const S& sin,
                         const LinearRopeOptions& options) {
  static_assert(Impl::all_accessible<Exec, X, W, Y, C, S>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearRopeForward problem{erase(x), erase(weight), {}, erase(y), erase(cos), erase(sin), options};
  problem.check();
  Impl::run_best(exec, problem, options.linear.workspace);
}

/// The same with a bias that is added before the rotation: `linear_bias_forward`, then `rope_forward`.
///
/// \param exec    the instance
/// \param x       (rows, in), T
/// \param weight  (out, in), T
/// \param bias    (out), T
/// \param y       (rows, out), T, overwritten; shares no memory with the inputs
/// \param cos     (table positions, head_dim / 2), compute_t<T>
/// \param sin     (table positions, head_dim / 2), compute_t<T>
/// \param options what is rotated
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported      if an option is out of its range
template <class Exec, ViewOf<2> X, ViewOf<2> W, ViewOf<1> B, ViewOf<2> Y, ViewOf<2> C, ViewOf<2> S>
void linear_rope_forward(const Exec& exec, const X& x, const W& weight, const B& bias, const Y& y, const C& cos,
                         const S& sin, const LinearRopeOptions& options) {
  static_assert(Impl::all_accessible<Exec, X, W, B, Y, C, S>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearRopeForward problem{erase(x),   erase(weight), erase(bias), erase(y),
                                        erase(cos), erase(sin),    options};
  problem.check();
  Impl::run_best(exec, problem, options.linear.workspace);
}

}  // namespace kformer
