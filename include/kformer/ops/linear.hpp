// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// The linear map `y = x Wᵀ`, alone, with a bias, or with a residual addition fused, and its gradients. Weights
/// are stored (out, in) as in published checkpoints.
///
/// Where matrices are taken, batches of as many are too: every matrix of a call then has one more extent, the
/// first, and each is computed by itself, `y_b = x_b W_bᵀ`. A stride of 0 along it gives all of them the same
/// factor. A bias is the same for all.

namespace kformer {

/// What a linear map takes besides its operands.
struct LinearOptions {
  double scale = 1;         ///< every product is multiplied by it before anything is added
  bool allow_tf32 = false;  ///< float factors may be rounded to 10 bits of fraction (TF32), where tensor cores
                            ///< then multiply them; hosts never do
  Workspace workspace{};    ///< none is needed; with `linear_workspace_bytes` a library can choose among all of
                            ///< its algorithms. Not for two instances at once.
};

/// The bytes of `LinearOptions::workspace` beyond which nothing gets faster: 32 MiB on CUDA, as NVIDIA advises
/// for cuBLASLt on Hopper, and 0 elsewhere.
template <class Exec>
constexpr std::size_t linear_workspace_bytes() {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return std::size_t(32) << 20;
#endif
  return 0;
}

/// A matrix, or a batch of matrices.
template <class V>
concept Matrices = ViewOf<V, 2> || ViewOf<V, 3>;

namespace Impl {

/// Operands other than `bias` are matrices, or all of them batches of matrices. At most one of `bias` and
/// `residual` is present.
struct LinearForward {
  static constexpr const char* op = "linear";
  static constexpr const char* function = "linear_forward";
  TensorRef x, weight, bias, residual, y;
  LinearOptions options{};
  Operands operands() const;
  void check() const;
};

struct LinearBackwardInput {
  static constexpr const char* op = "linear";
  static constexpr const char* function = "linear_backward_input";
  TensorRef weight, dy, dx;
  LinearOptions options{};
  Operands operands() const;
  void check() const;
};

struct LinearBackwardWeight {
  static constexpr const char* op = "linear";
  static constexpr const char* function = "linear_backward_weight";
  TensorRef x, dy, dweight;
  LinearOptions options{};
  Operands operands() const;
  void check() const;
};

struct LinearBiasBackward {
  static constexpr const char* op = "linear";
  static constexpr const char* function = "linear_bias_backward";
  TensorRef dy, dbias;
  Operands operands() const;
  void check() const;
};

/// The checks of the options, for whatever function has them.
void check_linear_options(const Operands& all, const LinearOptions& options);

/// The storage types, extents and options of `linear_forward`, for whatever function has these operands.
const Operands& check_linear_forward(const Operands& all, const LinearForward& p);

/// The checks of both halves of `linear_backward`, under its name, before either is launched.
void check_linear_backward(const LinearBackwardInput& input, const LinearBackwardWeight& weight);

}  // namespace Impl

/// The linear map of each row: `y = scale · x Wᵀ`.
///
/// \param exec   the instance everything is launched on; nothing is fenced or allocated
/// \param x      (rows, in), T
/// \param weight (out, in), T
/// \param y      (rows, out), T, overwritten; shares no memory with `x` or `weight`
/// \param options `scale`, `allow_tf32`, `workspace`
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported      if `scale` is not finite
template <class Exec, Matrices X, Matrices W, Matrices Y>
void linear_forward(const Exec& exec, const X& x, const W& weight, const Y& y, LinearOptions options = {}) {
  static_assert(Impl::all_accessible<Exec, X, W, Y>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearForward problem{erase(x), erase(weight), {}, {}, erase(y), options};
  problem.check();
  Impl::run_best(exec, problem, options.workspace);
}

/// The same with a bias: `y = scale · x Wᵀ + bias`, rounded once.
///
/// \param exec   the instance
/// \param x      (rows, in), T
/// \param weight (out, in), T
/// \param bias   (out), T, added to every row
/// \param y      (rows, out), T, overwritten; shares no memory with the inputs
/// \param options `scale`, `allow_tf32`, `workspace`
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported      if `scale` is not finite
template <class Exec, Matrices X, Matrices W, ViewOf<1> B, Matrices Y>
void linear_bias_forward(const Exec& exec, const X& x, const W& weight, const B& bias, const Y& y,
                         LinearOptions options = {}) {
  static_assert(Impl::all_accessible<Exec, X, W, B, Y>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearForward problem{erase(x), erase(weight), erase(bias), {}, erase(y), options};
  problem.check();
  Impl::run_best(exec, problem, options.workspace);
}

/// The same with the residual addition fused: `y = residual + scale · x Wᵀ`, rounded once.
///
/// \param exec     the instance
/// \param x        (rows, in), T
/// \param weight   (out, in), T
/// \param residual (rows, out), T; may be `y` itself (then `y += scale · x Wᵀ`), otherwise shares no memory
/// with it
/// \param y        (rows, out), T, overwritten; shares no memory with `x` or `weight`
/// \param options `scale`, `allow_tf32`, `workspace`
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported      if `scale` is not finite
template <class Exec, Matrices X, Matrices W, Matrices R, Matrices Y>
void linear_residual_forward(const Exec& exec, const X& x, const W& weight, const R& residual, const Y& y,
                             LinearOptions options = {}) {
  static_assert(Impl::all_accessible<Exec, X, W, R, Y>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearForward problem{erase(x), erase(weight), {}, erase(residual), erase(y), options};
  problem.check();
  Impl::run_best(exec, problem, options.workspace);
}

/// Gradient of `linear_forward` and its variants with respect to `x`: `dx = scale · dy W` (overwritten). The
/// gradient with respect to `residual` is `dy` itself.
///
/// \param exec   the instance
/// \param weight (out, in), T
/// \param dy     (rows, out), T
/// \param dx     (rows, in), T, overwritten; shares no memory with the inputs
/// \param options `scale`, `allow_tf32`, `workspace`
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported      if `scale` is not finite
template <class Exec, Matrices W, Matrices DY, Matrices DX>
void linear_backward_input(const Exec& exec, const W& weight, const DY& dy, const DX& dx,
                           LinearOptions options = {}) {
  static_assert(Impl::all_accessible<Exec, W, DY, DX>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearBackwardInput problem{erase(weight), erase(dy), erase(dx), options};
  problem.check();
  Impl::run_best(exec, problem, options.workspace);
}

/// Gradient of `linear_forward` and its variants with respect to `weight`: `dweight += scale · dyᵀ x`
/// (accumulated, the rows summed in a fixed order in compute_t<T>).
///
/// \param exec    the instance
/// \param x       (rows, in), T
/// \param dy      (rows, out), T
/// \param dweight (out, in), compute_t<T>, accumulated; shares no memory with the inputs
/// \param options `scale`, `allow_tf32`, `workspace`
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported      if `scale` is not finite
template <class Exec, Matrices X, Matrices DY, Matrices DW>
void linear_backward_weight(const Exec& exec, const X& x, const DY& dy, const DW& dweight,
                            LinearOptions options = {}) {
  static_assert(Impl::all_accessible<Exec, X, DY, DW>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearBackwardWeight problem{erase(x), erase(dy), erase(dweight), options};
  problem.check();
  Impl::run_best(exec, problem, options.workspace);
}

/// Both gradients of `linear_forward`: `linear_backward_input`, then `linear_backward_weight`.
///
/// \param exec    the instance
/// \param x       (rows, in), T
/// \param weight  (out, in), T
/// \param dy      (rows, out), T
/// \param dx      (rows, in), T, overwritten; shares no memory with the inputs
/// \param dweight (out, in), compute_t<T>, accumulated; shares no memory with the inputs
/// \param options `scale`, `allow_tf32`, `workspace`
/// \throws DimensionMismatch if extents, strides or storage types do not fit; then nothing was launched
/// \throws NotSupported      if `scale` is not finite
template <class Exec, Matrices X, Matrices W, Matrices DY, Matrices DX, Matrices DW>
void linear_backward(const Exec& exec, const X& x, const W& weight, const DY& dy, const DX& dx,
                     const DW& dweight, LinearOptions options = {}) {
  static_assert(Impl::all_accessible<Exec, X, W, DY, DX, DW>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearBackwardInput input{erase(weight), erase(dy), erase(dx), options};
  const Impl::LinearBackwardWeight by_weight{erase(x), erase(dy), erase(dweight), options};
  Impl::check_linear_backward(input, by_weight);
  Impl::run_best(exec, input, options.workspace);
  Impl::run_best(exec, by_weight, options.workspace);
}

/// Gradient of `linear_bias_forward` with respect to `bias`: `dbias += Σ_rows dy` (accumulated, in a fixed
/// order).
///
/// \param exec  the instance
/// \param dy    (rows, out), T
/// \param dbias (out), compute_t<T>, accumulated
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<2> DY, ViewOf<1> DB>
void linear_bias_backward(const Exec& exec, const DY& dy, const DB& dbias) {
  static_assert(Impl::all_accessible<Exec, DY, DB>,
                "kformer: Views must be accessible from the execution space");
  const Impl::LinearBiasBackward problem{erase(dy), erase(dbias)};
  problem.check();
  Impl::run_best(exec, problem);
}

}  // namespace kformer
