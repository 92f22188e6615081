// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/ops/linear.hpp"

/// \file
/// The linear map with low-rank adapters (LoRA: Hu et al., arXiv:2106.09685), forward and backward.
///
/// A weight may consist of several published matrices, one below the other, such as those of queries, keys and
/// values. Each may have an adapter: `part` p with matrices A_p (rank_p, in) and B_p (out_p, rank_p) adds
///
///     s_p (x A_pᵀ) B_pᵀ
///
/// to the columns of y that belong to its matrix. All A_p are one array `a`, one below the other, so that one
/// product reads x for all of them. The base weight is frozen: its gradient is never formed.

namespace kformer {

/// The most adapters of one weight.
inline constexpr std::size_t most_lora_parts = 3;

/// The adapter of some columns of y.
template <AnyView B>
struct LoraPart {
  B b;                      ///< (columns it adapts, rank), T
  std::int64_t column = 0;  ///< first column of y that it adapts
  double scale = 1;  ///< s, such as α/rank of LoRA or α/√rank of rsLoRA (Kalajdzievski, arXiv:2312.03732)
};

/// Options of the forward functions.
struct LoraOptions {
  bool batch_invariant = false;  ///< as in `LinearOptions`
};

namespace Impl {

/// A LoraPart as a kernel sees it.
struct LoraFactor {
  TensorRef b;
  std::int64_t column = 0;
  double scale = 1;
  std::int64_t rank() const { return b.extent[1]; }
  std::int64_t columns() const { return b.extent[0]; }
};

/// The adapters of a weight, in the order of their columns and of their rows in `a`.
struct LoraFactors {
  std::array<LoraFactor, most_lora_parts> part{};
  std::size_t count = 0;

  const LoraFactor* begin() const { return part.data(); }
  const LoraFactor* end() const { return part.data() + count; }
  /// Rows of `a`.
  std::int64_t rank() const;
};

/// At most one of `bias` and `residual` is present.
struct LoraForward {
  static constexpr const char* op = "lora";
  static constexpr const char* function = "lora_forward";
  TensorRef x, weight, bias, residual, a;
  LoraFactors parts;
  TensorRef xa, y;
  LoraOptions options{};
  Operands operands() const;
  void check() const;
};

struct LoraBackwardInput {
  static constexpr const char* op = "lora";
  static constexpr const char* function = "lora_backward_input";
  TensorRef weight, a;
  LoraFactors parts;
  TensorRef dy, dxa, dx;
  TensorRef addend{};  ///< of dx, which it may be; absent in public functions
  Operands operands() const;
  void check() const;
};

/// The adapters as plain structs.
template <class Exec, class T, class B, std::size_t count>
LoraFactors lora_factors(const std::array<LoraPart<B>, count>& parts) {
  static_assert(count <= most_lora_parts, "kformer: a weight has at most three adapters");
  LoraFactors all;
  for (const LoraPart<B>& part : parts)
    all.part[all.count++] = {input<Exec, T, 2>(part.b), part.column, part.scale};
  return all;
}

}  // namespace Impl

/// The operands of `lora_forward`.
template <AnyView X, AnyView W, AnyView A, AnyView B, AnyView U, AnyView Y, std::size_t count>
struct LoraForwardOperands {
  X x;                                   ///< (rows, in), T
  W weight;                              ///< (out, in), T
  A a;                                   ///< (Σ ranks, in), T, the matrices A of all parts in their order
  std::array<LoraPart<B>, count> parts;  ///< by ascending columns, which do not overlap
  U xa;                                  ///< (rows, Σ ranks), T, overwritten: `s_p x A_pᵀ`, saved for backward
  Y y;                                   ///< (rows, out), T, overwritten; shares no memory with the inputs
};

/// The linear map with adapters: `xa_p = s_p x A_pᵀ` and `y = x Wᵀ + xa_p B_pᵀ` in the columns of each part p,
/// `y = x Wᵀ` in all others. y is written once: the terms of the adapters are added while sums are in registers,
/// and rounded once. (`cublaslt` adds them in memory; in 16 bits it rounds them twice.) x is read twice: by the
/// products for xa, and then by those for y.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param operands  the Views, as `LoraForwardOperands` names them
/// \param options   of the products
/// \throws DimensionMismatch if extents, strides or storage types do not match, or parts overlap
/// \throws NotSupported      if compute_t<T> does not hold a scale
template <ExecutionSpace Exec, class X, class W, class A, class B, class U, class Y, std::size_t count>
void lora_forward(const Exec& exec, const LoraForwardOperands<X, W, A, B, U, Y, count>& operands,
                  const LoraOptions& options = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LoraForward problem{Impl::input<Exec, T, 2>(operands.x),
                                  Impl::input<Exec, T, 2>(operands.weight),
                                  {},
                                  {},
                                  Impl::input<Exec, T, 2>(operands.a),
                                  Impl::lora_factors<Exec, T>(operands.parts),
                                  Impl::output<Exec, T, 2>(operands.xa),
                                  Impl::output<Exec, T, 2>(operands.y),
                                  options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class X, class W, class A, class B, class U, class Y, std::size_t count>
void lora_forward(const LoraForwardOperands<X, W, A, B, U, Y, count>& operands,
                  const LoraOptions& options = {}) {
  lora_forward(Kokkos::DefaultExecutionSpace(), operands, options);
}

/// The operands of `lora_bias_forward`.
template <AnyView X, AnyView W, AnyView V, AnyView A, AnyView B, AnyView U, AnyView Y, std::size_t count>
struct LoraBiasForwardOperands {
  X x;                                   ///< (rows, in), T
  W weight;                              ///< (out, in), T
  V bias;                                ///< (out), T, added to every row
  A a;                                   ///< (Σ ranks, in), T
  std::array<LoraPart<B>, count> parts;  ///< by ascending columns, which do not overlap
  U xa;                                  ///< (rows, Σ ranks), T, overwritten, saved for backward
  Y y;                                   ///< (rows, out), T, overwritten; shares no memory with the inputs
};

/// The same with a bias: `y = x Wᵀ + xa Bᵀ + bias`, rounded once.
///
/// \param exec     the instance
/// \param operands the Views, as `LoraBiasForwardOperands` names them
/// \param options  of the products
/// \throws DimensionMismatch if extents, strides or storage types do not match, or parts overlap
/// \throws NotSupported      if compute_t<T> does not hold a scale
template <ExecutionSpace Exec, class X, class W, class V, class A, class B, class U, class Y, std::size_t count>
void lora_bias_forward(const Exec& exec, const LoraBiasForwardOperands<X, W, V, A, B, U, Y, count>& operands,
                       const LoraOptions& options = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LoraForward problem{Impl::input<Exec, T, 2>(operands.x),
                                  Impl::input<Exec, T, 2>(operands.weight),
                                  Impl::input<Exec, T, 1>(operands.bias),
                                  {},
                                  Impl::input<Exec, T, 2>(operands.a),
                                  Impl::lora_factors<Exec, T>(operands.parts),
                                  Impl::output<Exec, T, 2>(operands.xa),
                                  Impl::output<Exec, T, 2>(operands.y),
                                  options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class X, class W, class V, class A, class B, class U, class Y, std::size_t count>
void lora_bias_forward(const LoraBiasForwardOperands<X, W, V, A, B, U, Y, count>& operands,
                       const LoraOptions& options = {}) {
  lora_bias_forward(Kokkos::DefaultExecutionSpace(), operands, options);
}

/// The operands of `lora_residual_forward`.
template <AnyView X, AnyView W, AnyView R, AnyView A, AnyView B, AnyView U, AnyView Y, std::size_t count>
struct LoraResidualForwardOperands {
  X x;         ///< (rows, in), T
  W weight;    ///< (out, in), T
  R residual;  ///< (rows, out), T; may be `y` itself, otherwise shares no memory with it
  A a;         ///< (Σ ranks, in), T
  std::array<LoraPart<B>, count> parts;  ///< by ascending columns, which do not overlap
  U xa;                                  ///< (rows, Σ ranks), T, overwritten, saved for backward
  Y y;  ///< (rows, out), T, overwritten; shares no memory with the other inputs
};

/// The same with the residual addition fused: `y = residual + x Wᵀ + xa Bᵀ`, rounded once.
///
/// \param exec     the instance
/// \param operands the Views, as `LoraResidualForwardOperands` names them
/// \param options  of the products
/// \throws DimensionMismatch if extents, strides or storage types do not match, or parts overlap
/// \throws NotSupported      if compute_t<T> does not hold a scale
template <ExecutionSpace Exec, class X, class W, class R, class A, class B, class U, class Y, std::size_t count>
void lora_residual_forward(const Exec& exec,
                           const LoraResidualForwardOperands<X, W, R, A, B, U, Y, count>& operands,
                           const LoraOptions& options = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LoraForward problem{Impl::input<Exec, T, 2>(operands.x),
                                  Impl::input<Exec, T, 2>(operands.weight),
                                  {},
                                  Impl::input<Exec, T, 2>(operands.residual),
                                  Impl::input<Exec, T, 2>(operands.a),
                                  Impl::lora_factors<Exec, T>(operands.parts),
                                  Impl::output<Exec, T, 2>(operands.xa),
                                  Impl::output<Exec, T, 2>(operands.y),
                                  options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class X, class W, class R, class A, class B, class U, class Y, std::size_t count>
void lora_residual_forward(const LoraResidualForwardOperands<X, W, R, A, B, U, Y, count>& operands,
                           const LoraOptions& options = {}) {
  lora_residual_forward(Kokkos::DefaultExecutionSpace(), operands, options);
}

/// The operands of `lora_backward_input`.
template <AnyView W, AnyView A, AnyView B, AnyView DY, AnyView DU, AnyView DX, std::size_t count>
struct LoraBackwardInputOperands {
  W weight;                              ///< (out, in), T
  A a;                                   ///< (Σ ranks, in), T
  std::array<LoraPart<B>, count> parts;  ///< as in forward
  DY dy;                                 ///< (rows, out), T
  DU dxa;                                ///< (rows, Σ ranks), T, overwritten: `s_p dy_p B_p`
  DX dx;                                 ///< (rows, in), T, overwritten; shares no memory with the inputs
};

/// Gradient of `lora_forward` and its variants with respect to `x`: `dxa_p = s_p dy_p B_p` with dy_p the columns of
/// part p, and `dx = dy W + dxa A`, rounded once. The gradients of the adapters follow from the same arrays by
/// `linear_backward_weight`: `dA += dxaᵀ x` and `dB_p += dy_pᵀ xa_p`. That of the residual is `dy` itself.
///
/// \param exec     the instance
/// \param operands the Views, as `LoraBackwardInputOperands` names them
/// \throws DimensionMismatch if extents, strides or storage types do not match, or parts overlap
/// \throws NotSupported      if compute_t<T> does not hold a scale
template <ExecutionSpace Exec, class W, class A, class B, class DY, class DU, class DX, std::size_t count>
void lora_backward_input(const Exec& exec,
                         const LoraBackwardInputOperands<W, A, B, DY, DU, DX, count>& operands) {
  using T = Impl::scalar_t<W>;
  const Impl::LoraBackwardInput problem{
      Impl::input<Exec, T, 2>(operands.weight),    Impl::input<Exec, T, 2>(operands.a),
      Impl::lora_factors<Exec, T>(operands.parts), Impl::input<Exec, T, 2>(operands.dy),
      Impl::output<Exec, T, 2>(operands.dxa),      Impl::output<Exec, T, 2>(operands.dx)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class W, class A, class B, class DY, class DU, class DX, std::size_t count>
void lora_backward_input(const LoraBackwardInputOperands<W, A, B, DY, DU, DX, count>& operands) {
  lora_backward_input(Kokkos::DefaultExecutionSpace(), operands);
}

}  // namespace kformer
