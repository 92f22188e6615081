// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// Root-mean-square normalisation (Zhang & Sennrich, arXiv:1910.07467, eq. 4), alone and with the residual
/// addition fused.

namespace kformer {

/// Options of `rms_norm_*`.
struct RmsNormOptions {
  double eps = 1e-5;  ///< added to the mean square; `rms_norm_eps` of published configurations
};

namespace Impl {

/// What is normalised: the rows of a matrix, or the heads of tokens, (tokens, heads, head_dim).
struct NormRows {
  std::int64_t count;   ///< rows, or tokens · heads
  std::int64_t hidden;  ///< elements of each
  std::int64_t heads;   ///< of a token; 1 for the rows of a matrix
  explicit NormRows(const TensorRef& x)
      : count(x.rank == 3 ? x.extent[0] * x.extent[1] : x.extent[0]),
        hidden(x.extent[x.rank - 1]),
        heads(x.rank == 3 ? x.extent[1] : 1) {}
};

/// `residual` and `sum` are present together (the fused form) or absent together.
struct RmsNormForward {
  static constexpr const char* op = "rms_norm";
  static constexpr const char* function = "rms_norm_forward";
  TensorRef x, residual, weight, sum, y, rstd;
  double eps;
  Operands operands() const;
  void check() const;
};

/// `dsum` is present in the fused form only. `x` is what was normalised: the sum in the fused form.
struct RmsNormBackward {
  static constexpr const char* op = "rms_norm";
  static constexpr const char* function = "rms_norm_backward";
  TensorRef x, weight, rstd, dy, dsum, dx, dweight;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// Normalises each row: `rstd = 1 / sqrt(mean(x²) + eps)`, `y = x · rstd · weight`.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param x       (rows, hidden), T
/// \param weight  (hidden), T
/// \param y       (rows, hidden), T, overwritten; may be `x` itself
/// \param rstd    (rows), compute_t<T>, overwritten; saved for backward
/// \param options epsilon
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<2> X, ViewOf<1> W, ViewOf<2> Y, ViewOf<1> R>
void rms_norm_forward(const Exec& exec, const X& x, const W& weight, const Y& y, const R& rstd,
                      const RmsNormOptions& options = {}) {
  static_assert(Impl::all_accessible<Exec, X, W, Y, R>,
                "kformer: Views must be accessible from the execution space");
  const Impl::RmsNormForward problem{erase(x), {}, erase(weight), {}, erase(y), erase(rstd), options.eps};
  problem.check();
  Impl::run_best(exec, problem);
}

/// The same with the residual addition fused: `sum = x + residual`, then `y = sum · rstd · weight`.
///
/// \param exec     the instance
/// \param x        (rows, hidden), T
/// \param residual (rows, hidden), T
/// \param weight   (hidden), T
/// \param sum      (rows, hidden), T, overwritten; saved for backward; may be `x` or `residual` itself. The
/// norm is that
///                 of the sum as stored.
/// \param y        (rows, hidden), T, overwritten
/// \param rstd     (rows), compute_t<T>, overwritten; saved for backward
/// \param options  epsilon
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<2> X, ViewOf<2> A, ViewOf<1> W, ViewOf<2> S, ViewOf<2> Y, ViewOf<1> R>
void rms_norm_residual_forward(const Exec& exec, const X& x, const A& residual, const W& weight, const S& sum,
                               const Y& y, const R& rstd, const RmsNormOptions& options = {}) {
  static_assert(Impl::all_accessible<Exec, X, A, W, S, Y, R>,
                "kformer: Views must be accessible from the execution space");
  const Impl::RmsNormForward problem{erase(x), erase(residual), erase(weight), erase(sum),
                                     erase(y), erase(rstd),     options.eps};
  problem.check();
  Impl::run_best(exec, problem);
}

/// Bytes of workspace `rms_norm_backward` and `rms_norm_residual_backward` need for `rows` × `hidden` values of
/// type `T`.
template <class T, class Exec>
std::size_t rms_norm_backward_workspace_bytes(const Exec&, std::int64_t rows, std::int64_t hidden) {
  Impl::RmsNormBackward problem{};
  problem.x.dtype = dtype_of<T>;
  problem.x.rank = 2;
  problem.x.extent = {rows, hidden};
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// Gradients of `rms_norm_forward`: with `g = dy · weight` and `x̂ = x · rstd`,
/// `dx = rstd · (g − x̂ · mean(g · x̂))` (overwritten), `dweight += Σ_rows dy · x̂` (accumulated, in a fixed
/// order).
///
/// \param exec      the instance
/// \param x         (rows, hidden), T, the input of forward
/// \param weight    (hidden), T
/// \param rstd      (rows), compute_t<T>, saved by forward
/// \param dy        (rows, hidden), T
/// \param dx        (rows, hidden), T, overwritten; may be `dy` itself
/// \param dweight   (hidden), compute_t<T>, accumulated
/// \param workspace at least `rms_norm_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
template <class Exec, ViewOf<2> X, ViewOf<1> W, ViewOf<1> R, ViewOf<2> DY, ViewOf<2> DX, ViewOf<1> DW>
void rms_norm_backward(const Exec& exec, const X& x, const W& weight, const R& rstd, const DY& dy, const DX& dx,
                       const DW& dweight, const Workspace& workspace) {
  static_assert(Impl::all_accessible<Exec, X, W, R, DY, DX, DW>,
                "kformer: Views must be accessible from the execution space");
  const Impl::RmsNormBackward problem{erase(x), erase(weight), erase(rstd),   erase(dy),
                                      {},       erase(dx),     erase(dweight)};
  problem.check();
  Impl::run_best(exec, problem, workspace);
}

/// Gradients of `rms_norm_residual_forward`: as `rms_norm_backward` with `x = sum`, and the gradient that
/// reaches the sum by its other use is added: `dx = dsum + …`. `dx` is the gradient of both `x` and `residual`
/// of forward.
///
/// \param exec      the instance
/// \param sum       (rows, hidden), T, saved by forward
/// \param weight    (hidden), T
/// \param rstd      (rows), compute_t<T>, saved by forward
/// \param dy        (rows, hidden), T
/// \param dsum      (rows, hidden), T, gradient of `sum` from elsewhere
/// \param dx        (rows, hidden), T, overwritten; may be `dy` or `dsum` itself
/// \param dweight   (hidden), compute_t<T>, accumulated
/// \param workspace at least `rms_norm_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
template <class Exec, ViewOf<2> X, ViewOf<1> W, ViewOf<1> R, ViewOf<2> DY, ViewOf<2> DS, ViewOf<2> DX,
          ViewOf<1> DW>
void rms_norm_residual_backward(const Exec& exec, const X& sum, const W& weight, const R& rstd, const DY& dy,
                                const DS& dsum, const DX& dx, const DW& dweight, const Workspace& workspace) {
  static_assert(Impl::all_accessible<Exec, X, W, R, DY, DS, DX, DW>,
                "kformer: Views must be accessible from the execution space");
  const Impl::RmsNormBackward problem{erase(sum),  erase(weight), erase(rstd),   erase(dy),
                                      erase(dsum), erase(dx),     erase(dweight)};
  problem.check();
  Impl::run_best(exec, problem, workspace);
}

/// `rms_norm_forward` of every head of every token, in one launch: heads are slices of wider rows, such as the queries
/// in a fused projection (Qwen3's norms of queries and keys).
///
/// \param exec    the instance
/// \param x       (tokens, heads, head_dim), T
/// \param weight  (head_dim), T, the same for all heads
/// \param y       (tokens, heads, head_dim), T, overwritten; may be `x` itself
/// \param rstd    (tokens, heads), compute_t<T>, dense, overwritten; saved for backward
/// \param options epsilon
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<3> X, ViewOf<1> W, ViewOf<3> Y, ViewOf<2> R>
void rms_norm_forward(const Exec& exec, const X& x, const W& weight, const Y& y, const R& rstd,
                      const RmsNormOptions& options = {}) {
  static_assert(Impl::all_accessible<Exec, X, W, Y, R>,
                "kformer: Views must be accessible from the execution space");
  const Impl::RmsNormForward problem{erase(x), {}, erase(weight), {}, erase(y), erase(rstd), options.eps};
  problem.check();
  Impl::run_best(exec, problem);
}

/// Bytes of workspace `rms_norm_backward` needs for the heads of tokens.
template <class T, class Exec>
std::size_t rms_norm_backward_workspace_bytes(const Exec&, std::int64_t tokens, std::int64_t heads,
                                              std::int64_t head_dim) {
  Impl::RmsNormBackward problem{};
  problem.x.dtype = dtype_of<T>;
  problem.x.rank = 3;
  problem.x.extent = {tokens, heads, head_dim};
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// Gradients of `rms_norm_forward` of heads: `dweight` sums over tokens and heads, in a fixed order.
///
/// \param exec      the instance
/// \param x         (tokens, heads, head_dim), T, the input of forward
/// \param weight    (head_dim), T
/// \param rstd      (tokens, heads), compute_t<T>, saved by forward
/// \param dy        (tokens, heads, head_dim), T
/// \param dx        (tokens, heads, head_dim), T, overwritten; may be `dy` itself
/// \param dweight   (head_dim), compute_t<T>, accumulated
/// \param workspace at least `rms_norm_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
template <class Exec, ViewOf<3> X, ViewOf<1> W, ViewOf<2> R, ViewOf<3> DY, ViewOf<3> DX, ViewOf<1> DW>
void rms_norm_backward(const Exec& exec, const X& x, const W& weight, const R& rstd, const DY& dy, const DX& dx,
                       const DW& dweight, const Workspace& workspace) {
  static_assert(Impl::all_accessible<Exec, X, W, R, DY, DX, DW>,
                "kformer: Views must be accessible from the execution space");
  const Impl::RmsNormBackward problem{erase(x), erase(weight), erase(rstd),   erase(dy),
                                      {},       erase(dx),     erase(dweight)};
  problem.check();
  Impl::run_best(exec, problem, workspace);
}

}  // namespace kformer
