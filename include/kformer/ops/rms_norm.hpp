// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// Root-mean-square normalisation (Zhang & Sennrich, arXiv:1910.07467, eq. 4), alone and with the residual
/// addition fused, and of queries and keys together.

namespace kformer {

/// Options of `rms_norm_*` and `qk_norm_forward`.
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

/// Neither `q` nor `k` is of the fused form; both have the same eps.
struct QkNormForward {
  static constexpr const char* op = "rms_norm";
  static constexpr const char* function = "qk_norm_forward";
  RmsNormForward q, k;
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
/// A row may also be the head of a token, such as a query in a fused projection: `x` and `y` are then
/// (tokens, heads, head_dim), `weight` is (head_dim), and `rstd` is (tokens, heads) and dense.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param x       (rows, hidden), T
/// \param weight  (hidden), T
/// \param y       (rows, hidden), T, overwritten; may be `x` itself
/// \param rstd    (rows), compute_t<T>, overwritten; saved for backward
/// \param options epsilon
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if eps is negative, or compute_t<T> does not hold it
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView Y, AnyView R>
void rms_norm_forward(const Exec& exec, const X& x, const W& weight, const Y& y, const R& rstd,
                      const RmsNormOptions& options = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::RmsNormForward problem{Impl::input<Exec, T, 2, 3>(x),
                                     {},
                                     Impl::input<Exec, T, 1>(weight),
                                     {},
                                     Impl::output<Exec, T, 2, 3>(y),
                                     Impl::output<Exec, compute_t<T>, 1, 2>(rstd),
                                     options.eps};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView Y, AnyView R>
void rms_norm_forward(const X& x, const W& weight, const Y& y, const R& rstd,
                      const RmsNormOptions& options = {}) {
  rms_norm_forward(Kokkos::DefaultExecutionSpace(), x, weight, y, rstd, options);
}

/// The operands of `rms_norm_residual_forward`.
template <AnyView X, AnyView A, AnyView W, AnyView S, AnyView Y, AnyView R>
struct RmsNormResidualForwardOperands {
  X x;         ///< (rows, hidden), T
  A residual;  ///< (rows, hidden), T
  W weight;    ///< (hidden), T
  /// (rows, hidden), T, overwritten; saved for backward; may be `x` or `residual` itself. The norm is that of
  /// the sum as stored.
  S sum;
  Y y;     ///< (rows, hidden), T, overwritten
  R rstd;  ///< (rows), compute_t<T>, overwritten; saved for backward
};

/// The same with the residual addition fused: `sum = x + residual`, then `y = sum · rstd · weight`.
///
/// \param exec     the instance
/// \param operands the Views, as `RmsNormResidualForwardOperands` names them
/// \param options  epsilon
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if eps is negative, or compute_t<T> does not hold it
template <ExecutionSpace Exec, class... V>
void rms_norm_residual_forward(const Exec& exec, const RmsNormResidualForwardOperands<V...>& operands,
                               const RmsNormOptions& options = {}) {
  using T = Impl::scalar_t<decltype(operands.x)>;
  const Impl::RmsNormForward problem{Impl::input<Exec, T, 2>(operands.x),
                                     Impl::input<Exec, T, 2>(operands.residual),
                                     Impl::input<Exec, T, 1>(operands.weight),
                                     Impl::output<Exec, T, 2>(operands.sum),
                                     Impl::output<Exec, T, 2>(operands.y),
                                     Impl::output<Exec, compute_t<T>, 1>(operands.rstd),
                                     options.eps};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class... V>
void rms_norm_residual_forward(const RmsNormResidualForwardOperands<V...>& operands,
                               const RmsNormOptions& options = {}) {
  rms_norm_residual_forward(Kokkos::DefaultExecutionSpace(), operands, options);
}

/// The operands of `qk_norm_forward`.
template <AnyView Q, AnyView K, AnyView QW, AnyView KW, AnyView QO, AnyView KO, AnyView QR, AnyView KR>
struct QkNormForwardOperands {
  Q q;          ///< (tokens, q_heads, head_dim), T
  K k;          ///< (tokens, k_heads, head_dim), T
  QW q_weight;  ///< (head_dim), T
  KW k_weight;  ///< (head_dim), T
  QO q_out;     ///< (tokens, q_heads, head_dim), T, overwritten; may be `q` itself
  KO k_out;     ///< (tokens, k_heads, head_dim), T, overwritten; may be `k` itself
  QR q_rstd;    ///< (tokens, q_heads), compute_t<T>, dense, overwritten; saved for backward
  KR k_rstd;    ///< (tokens, k_heads), compute_t<T>, dense, overwritten; saved for backward
};

/// Normalises each head of queries and of keys, each side with its own weight, in one launch: for every head of
/// `q`, `q_rstd = 1 / sqrt(mean(q²) + eps)`, `q_out = q · q_rstd · q_weight`, and so for `k`. The results are
/// those of `rms_norm_forward` on each side; backward is `rms_norm_backward` on each side.
///
/// \param exec     the instance everything is launched on; nothing is fenced or allocated
/// \param operands the Views, as `QkNormForwardOperands` names them
/// \param options  epsilon
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if eps is negative, or compute_t<T> does not hold it
template <ExecutionSpace Exec, class... V>
void qk_norm_forward(const Exec& exec, const QkNormForwardOperands<V...>& operands,
                     const RmsNormOptions& options = {}) {
  using T = Impl::scalar_t<decltype(operands.q)>;
  const auto side = [&](const auto& x, const auto& weight, const auto& y, const auto& rstd) {
    return Impl::RmsNormForward{Impl::input<Exec, T, 3>(x),
                                {},
                                Impl::input<Exec, T, 1>(weight),
                                {},
                                Impl::output<Exec, T, 3>(y),
                                Impl::output<Exec, compute_t<T>, 2>(rstd),
                                options.eps};
  };
  const Impl::QkNormForward problem{side(operands.q, operands.q_weight, operands.q_out, operands.q_rstd),
                                    side(operands.k, operands.k_weight, operands.k_out, operands.k_rstd)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class... V>
void qk_norm_forward(const QkNormForwardOperands<V...>& operands, const RmsNormOptions& options = {}) {
  qk_norm_forward(Kokkos::DefaultExecutionSpace(), operands, options);
}

/// Bytes of workspace `rms_norm_backward` needs for `rows` × `hidden` values of type `T`.
template <Scalar T, ExecutionSpace Exec>
std::size_t rms_norm_backward_workspace_bytes(const Exec&, std::int64_t rows, std::int64_t hidden) {
  Impl::RmsNormBackward problem{};
  problem.x.dtype = dtype_of<T>;
  problem.x.rank = 2;
  problem.x.extent = {rows, hidden};
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// The same on the default instance.
template <Scalar T>
std::size_t rms_norm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) {
  return rms_norm_backward_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), rows, hidden);
}

/// Bytes of workspace `rms_norm_backward` needs for the heads of tokens.
template <Scalar T, ExecutionSpace Exec>
std::size_t rms_norm_backward_workspace_bytes(const Exec&, std::int64_t tokens, std::int64_t heads,
                                              std::int64_t head_dim) {
  Impl::RmsNormBackward problem{};
  problem.x.dtype = dtype_of<T>;
  problem.x.rank = 3;
  problem.x.extent = {tokens, heads, head_dim};
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// The same on the default instance.
template <Scalar T>
std::size_t rms_norm_backward_workspace_bytes(std::int64_t tokens, std::int64_t heads, std::int64_t head_dim) {
  return rms_norm_backward_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), tokens, heads, head_dim);
}

/// The operands of `rms_norm_backward`.
template <AnyView X, AnyView W, AnyView R, AnyView DY, AnyView DX, AnyView DW>
struct RmsNormBackwardOperands {
  X x;         ///< (rows, hidden), T, the input of forward
  W weight;    ///< (hidden), T
  R rstd;      ///< (rows), compute_t<T>, saved by forward
  DY dy;       ///< (rows, hidden), T
  DX dx;       ///< (rows, hidden), T, overwritten; may be `dy` itself
  DW dweight;  ///< (hidden), compute_t<T>, accumulated; (0) where the weight is frozen
};

/// Gradients of `rms_norm_forward`: with `g = dy · weight` and `x̂ = x · rstd`,
/// `dx = rstd · (g − x̂ · mean(g · x̂))` (overwritten), `dweight += Σ_rows dy · x̂` (accumulated, in a fixed
/// order). A row may be the head of a token, as in `rms_norm_forward`.
///
/// \param exec      the instance
/// \param operands  the Views, as `RmsNormBackwardOperands` names them
/// \param workspace at least `rms_norm_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
template <ExecutionSpace Exec, class... V>
void rms_norm_backward(const Exec& exec, const RmsNormBackwardOperands<V...>& operands,
                       const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.x)>;
  const Impl::RmsNormBackward problem{Impl::input<Exec, T, 2, 3>(operands.x),
                                      Impl::input<Exec, T, 1>(operands.weight),
                                      Impl::input<Exec, compute_t<T>, 1, 2>(operands.rstd),
                                      Impl::input<Exec, T, 2, 3>(operands.dy),
                                      {},
                                      Impl::output<Exec, T, 2, 3>(operands.dx),
                                      Impl::output<Exec, compute_t<T>, 1>(operands.dweight)};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <class... V>
void rms_norm_backward(const RmsNormBackwardOperands<V...>& operands, const Workspace& workspace = {}) {
  rms_norm_backward(Kokkos::DefaultExecutionSpace(), operands, workspace);
}

/// Bytes of workspace `rms_norm_residual_backward` needs: as many as `rms_norm_backward`.
template <Scalar T, ExecutionSpace Exec>
std::size_t rms_norm_residual_backward_workspace_bytes(const Exec& exec, std::int64_t rows,
                                                       std::int64_t hidden) {
  return rms_norm_backward_workspace_bytes<T>(exec, rows, hidden);
}

/// The same on the default instance.
template <Scalar T>
std::size_t rms_norm_residual_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) {
  return rms_norm_backward_workspace_bytes<T>(rows, hidden);
}

/// The operands of `rms_norm_residual_backward`.
template <AnyView X, AnyView W, AnyView R, AnyView DY, AnyView DS, AnyView DX, AnyView DW>
struct RmsNormResidualBackwardOperands {
  X sum;       ///< (rows, hidden), T, saved by forward
  W weight;    ///< (hidden), T
  R rstd;      ///< (rows), compute_t<T>, saved by forward
  DY dy;       ///< (rows, hidden), T
  DS dsum;     ///< (rows, hidden), T, gradient of `sum` from elsewhere
  DX dx;       ///< (rows, hidden), T, overwritten; may be `dy` or `dsum` itself
  DW dweight;  ///< (hidden), compute_t<T>, accumulated; (0) where the weight is frozen
};

/// Gradients of `rms_norm_residual_forward`: as `rms_norm_backward` with `x = sum`, and the gradient that
/// reaches the sum by its other use is added: `dx = dsum + …`. `dx` is the gradient of both `x` and `residual`
/// of forward.
///
/// \param exec      the instance
/// \param operands  the Views, as `RmsNormResidualBackwardOperands` names them
/// \param workspace at least `rms_norm_residual_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
template <ExecutionSpace Exec, class... V>
void rms_norm_residual_backward(const Exec& exec, const RmsNormResidualBackwardOperands<V...>& operands,
                                const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.sum)>;
  const Impl::RmsNormBackward problem{Impl::input<Exec, T, 2>(operands.sum),
                                      Impl::input<Exec, T, 1>(operands.weight),
                                      Impl::input<Exec, compute_t<T>, 1>(operands.rstd),
                                      Impl::input<Exec, T, 2>(operands.dy),
                                      Impl::input<Exec, T, 2>(operands.dsum),
                                      Impl::output<Exec, T, 2>(operands.dx),
                                      Impl::output<Exec, compute_t<T>, 1>(operands.dweight)};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <class... V>
void rms_norm_residual_backward(const RmsNormResidualBackwardOperands<V...>& operands,
                                const Workspace& workspace = {}) {
  rms_norm_residual_backward(Kokkos::DefaultExecutionSpace(), operands, workspace);
}

}  // namespace kformer
