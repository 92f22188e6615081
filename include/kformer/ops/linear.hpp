// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// The linear map `y = x Wᵀ`, alone, with a bias, or with a residual addition fused, and its gradients. Weights
/// are stored (out, in) as in published checkpoints.
///
/// Every function also takes batches: every matrix of a call then has one more extent, the
/// first, and computes `y_b = x_b W_bᵀ` for each. A stride of 0 along it gives all of them the same
/// factor; outputs have a place of their own for each. A bias is the same for all.

namespace kformer {

/// Options of the linear map.
struct LinearOptions {
  double scale = 1;         ///< factor on the product, before anything is added
  bool allow_tf32 = false;  ///< float factors may be rounded to 10 bits of fraction (TF32), where tensor cores
                            ///< then multiply them; hosts never do
  bool batch_invariant = false;  ///< forward: a row of y has the same bits whatever the other rows are, and
                                 ///< however many; few rows then take longer
};

namespace Impl {

/// Bytes of workspace beyond which no product gets faster: 32 MiB on CUDA, as NVIDIA recommends for cuBLASLt on
/// Hopper, and 0 elsewhere.
template <class Exec>
constexpr std::size_t product_workspace_bytes() {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return std::size_t(32) << 20;
#endif
  return 0;
}

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

struct LinearBackwardBias {
  static constexpr const char* op = "linear";
  static constexpr const char* function = "linear_backward_bias";
  TensorRef dy, dbias;
  Operands operands() const;
  void check() const;
};

/// The checks of the options, for whatever function has them. The matrices are stored as `stored`.
void check_linear_options(const Operands& all, const LinearOptions& options, DType stored);

/// The storage types, extents and options of `linear_forward`, for whatever function has these operands.
const Operands& check_linear_forward(const Operands& all, const LinearForward& p);

/// The checks of both halves of `linear_backward`, under its name, before either is launched: memory, too.
void check_linear_backward(const LinearBackwardInput& input, const LinearBackwardWeight& weight);

}  // namespace Impl

/// The linear map of each row: `y = scale · x Wᵀ`.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param x       (rows, in), T
/// \param weight  (out, in), T
/// \param y       (rows, out), T, overwritten; shares no memory with `x` or `weight`
/// \param options `scale`, `allow_tf32`, `batch_invariant`
/// \param workspace as much as `linear_forward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported      if compute_t<T> does not hold `scale`
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView Y>
void linear_forward(const Exec& exec, const X& x, const W& weight, const Y& y,
                    const LinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LinearForward problem{Impl::input<Exec, T, 2, 3>(x),
                                    Impl::input<Exec, T, 2, 3>(weight),
                                    {},
                                    {},
                                    Impl::output<Exec, T, 2, 3>(y),
                                    options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView Y>
void linear_forward(const X& x, const W& weight, const Y& y, const LinearOptions& options = {},
                    const Workspace& workspace = {}) {
  linear_forward(Kokkos::DefaultExecutionSpace(), x, weight, y, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for `linear_forward`. None is
/// needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_forward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// The same with a bias: `y = scale · x Wᵀ + bias`, rounded once.
///
/// \param exec    the instance
/// \param x       (rows, in), T
/// \param weight  (out, in), T
/// \param bias    (out), T, added to every row
/// \param y       (rows, out), T, overwritten; shares no memory with the inputs
/// \param options `scale`, `allow_tf32`, `batch_invariant`
/// \param workspace as much as `linear_bias_forward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported      if compute_t<T> does not hold `scale`
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView B, AnyView Y>
void linear_bias_forward(const Exec& exec, const X& x, const W& weight, const B& bias, const Y& y,
                         const LinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LinearForward problem{Impl::input<Exec, T, 2, 3>(x),  Impl::input<Exec, T, 2, 3>(weight),
                                    Impl::input<Exec, T, 1>(bias),  {},
                                    Impl::output<Exec, T, 2, 3>(y), options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView B, AnyView Y>
void linear_bias_forward(const X& x, const W& weight, const B& bias, const Y& y,
                         const LinearOptions& options = {}, const Workspace& workspace = {}) {
  linear_bias_forward(Kokkos::DefaultExecutionSpace(), x, weight, bias, y, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for `linear_bias_forward`.
/// None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_bias_forward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// The same with the residual addition fused: `y = residual + scale · x Wᵀ`, rounded once.
///
/// \param exec     the instance
/// \param x        (rows, in), T
/// \param weight   (out, in), T
/// \param residual (rows, out), T; may be `y` itself (then `y += scale · x Wᵀ`), otherwise shares no memory
///                 with it
/// \param y        (rows, out), T, overwritten; shares no memory with `x` or `weight`
/// \param options  `scale`, `allow_tf32`, `batch_invariant`
/// \param workspace as much as `linear_residual_forward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported      if compute_t<T> does not hold `scale`
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView R, AnyView Y>
void linear_residual_forward(const Exec& exec, const X& x, const W& weight, const R& residual, const Y& y,
                             const LinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LinearForward problem{
      Impl::input<Exec, T, 2, 3>(x),        Impl::input<Exec, T, 2, 3>(weight), {},
      Impl::input<Exec, T, 2, 3>(residual), Impl::output<Exec, T, 2, 3>(y),     options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView R, AnyView Y>
void linear_residual_forward(const X& x, const W& weight, const R& residual, const Y& y,
                             const LinearOptions& options = {}, const Workspace& workspace = {}) {
  linear_residual_forward(Kokkos::DefaultExecutionSpace(), x, weight, residual, y, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for
/// `linear_residual_forward`. None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_residual_forward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// Gradient of `linear_forward` and its variants with respect to `x`: `dx = scale · dy W` (overwritten). The
/// gradient with respect to `residual` is `dy` itself.
///
/// \param exec    the instance
/// \param weight  (out, in), T
/// \param dy      (rows, out), T
/// \param dx      (rows, in), T, overwritten; shares no memory with the inputs
/// \param options `scale`, `allow_tf32`
/// \param workspace as much as `linear_backward_input_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported      if compute_t<T> does not hold `scale`
template <ExecutionSpace Exec, AnyView W, AnyView DY, AnyView DX>
void linear_backward_input(const Exec& exec, const W& weight, const DY& dy, const DX& dx,
                           const LinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<W>;
  const Impl::LinearBackwardInput problem{Impl::input<Exec, T, 2, 3>(weight), Impl::input<Exec, T, 2, 3>(dy),
                                          Impl::output<Exec, T, 2, 3>(dx), options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView W, AnyView DY, AnyView DX>
void linear_backward_input(const W& weight, const DY& dy, const DX& dx, const LinearOptions& options = {},
                           const Workspace& workspace = {}) {
  linear_backward_input(Kokkos::DefaultExecutionSpace(), weight, dy, dx, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for `linear_backward_input`.
/// None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_backward_input_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// Gradient of `linear_forward` and its variants with respect to `weight`: `dweight += scale · dyᵀ x`
/// (accumulated, the rows summed in a fixed order in compute_t<T>).
///
/// \param exec    the instance
/// \param x       (rows, in), T
/// \param dy      (rows, out), T
/// \param dweight (out, in), compute_t<T>, accumulated; shares no memory with the inputs
/// \param options `scale`, `allow_tf32`
/// \param workspace as much as `linear_backward_weight_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported      if compute_t<T> does not hold `scale`
template <ExecutionSpace Exec, AnyView X, AnyView DY, AnyView DW>
void linear_backward_weight(const Exec& exec, const X& x, const DY& dy, const DW& dweight,
                            const LinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LinearBackwardWeight problem{Impl::input<Exec, T, 2, 3>(x), Impl::input<Exec, T, 2, 3>(dy),
                                           Impl::output<Exec, compute_t<T>, 2, 3>(dweight), options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView DY, AnyView DW>
void linear_backward_weight(const X& x, const DY& dy, const DW& dweight, const LinearOptions& options = {},
                            const Workspace& workspace = {}) {
  linear_backward_weight(Kokkos::DefaultExecutionSpace(), x, dy, dweight, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for `linear_backward_weight`.
/// None is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_backward_weight_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// Both gradients of `linear_forward`: `linear_backward_input`, then `linear_backward_weight`.
///
/// \param exec    the instance
/// \param x       (rows, in), T
/// \param weight  (out, in), T
/// \param dy      (rows, out), T
/// \param dx      (rows, in), T, overwritten; shares no memory with the inputs
/// \param dweight (out, in), compute_t<T>, accumulated; shares no memory with the inputs
/// \param options `scale`, `allow_tf32`
/// \param workspace as much as `linear_backward_workspace_bytes` returns, or none
/// \throws DimensionMismatch if extents, strides or storage types do not match; then nothing was launched
/// \throws NotSupported      if compute_t<T> does not hold `scale`
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView DY, AnyView DX, AnyView DW>
void linear_backward(const Exec& exec, const X& x, const W& weight, const DY& dy, const DX& dx,
                     const DW& dweight, const LinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::LinearBackwardInput input{Impl::input<Exec, T, 2, 3>(weight), Impl::input<Exec, T, 2, 3>(dy),
                                        Impl::output<Exec, T, 2, 3>(dx), options};
  const Impl::LinearBackwardWeight by_weight{Impl::input<Exec, T, 2, 3>(x), Impl::input<Exec, T, 2, 3>(dy),
                                             Impl::output<Exec, compute_t<T>, 2, 3>(dweight), options};
  Impl::check_linear_backward(input, by_weight);
  Impl::run_best(exec, input, workspace);
  Impl::run_best(exec, by_weight, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView DY, AnyView DX, AnyView DW>
void linear_backward(const X& x, const W& weight, const DY& dy, const DX& dx, const DW& dweight,
                     const LinearOptions& options = {}, const Workspace& workspace = {}) {
  linear_backward(Kokkos::DefaultExecutionSpace(), x, weight, dy, dx, dweight, options, workspace);
}

/// Bytes of workspace that let a library choose among all its algorithms for `linear_backward`. None
/// is needed; two instances must not share one at the same time.
template <ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
std::size_t linear_backward_workspace_bytes(const Exec& = Exec()) {
  return Impl::product_workspace_bytes<Exec>();
}

/// Gradient of `linear_bias_forward` with respect to `bias`: `dbias += Σ_rows dy` (accumulated, in a fixed
/// order).
///
/// \param exec  the instance
/// \param dy    (rows, out), T
/// \param dbias (out), compute_t<T>, accumulated
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView DY, AnyView DB>
void linear_backward_bias(const Exec& exec, const DY& dy, const DB& dbias) {
  using T = Impl::scalar_t<DY>;
  const Impl::LinearBackwardBias problem{Impl::input<Exec, T, 2>(dy),
                                         Impl::output<Exec, compute_t<T>, 1>(dbias)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView DY, AnyView DB>
void linear_backward_bias(const DY& dy, const DB& dbias) {
  linear_backward_bias(Kokkos::DefaultExecutionSpace(), dy, dbias);
}

}  // namespace kformer
