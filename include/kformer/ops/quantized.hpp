// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/core/quantized_format.hpp"
#include "kformer/core/types/activations.hpp"
#include "kformer/ops/linear.hpp"

/// \file
/// Weight matrices that stay quantised in memory: conversions, the linear map `y = x Wᵀ` and its gradient with
/// respect to x, and rows of a table by their ids. The formats are those of kformer/core/quantized_format.hpp.

namespace kformer {

/// A quantised matrix (rows, cols), which is (out, in) of a linear map. Owns nothing.
struct QuantizedMatrix {
  QuantizedFormat format = QuantizedFormat::q8_0;  ///< of every block
  const std::byte* data = nullptr;  ///< `quantized_bytes` of them, at any address the execution space can read
  std::int64_t rows = 0;            ///< outputs, or words of a vocabulary
  std::int64_t cols = 0;            ///< inputs; need not fill the last block of a row
};

/// A quantised matrix to be written.
struct QuantizedOutput {
  QuantizedFormat format = QuantizedFormat::q8_0;  ///< of every block
  std::byte* data = nullptr;  ///< `quantized_bytes` of them, at any address the execution space can write
  std::int64_t rows = 0;      ///< as in QuantizedMatrix
  std::int64_t cols = 0;      ///< as in QuantizedMatrix

  /// The matrix, once it is written.
  operator QuantizedMatrix() const { return {format, data, rows, cols}; }
};

/// What a quantised linear map takes besides its operands.
struct QuantizedLinearOptions {
  Activations activations = Activations::full;  ///< see `quantized_linear_forward`
  double scale = 1;                             ///< factor on the product, before anything is added
  bool batch_invariant = false;                 ///< as in `LinearOptions`
};

namespace Impl {

/// The matrix as an operand: its extents, for checks and their texts.
TensorRef operand(const QuantizedMatrix& matrix);

/// The bytes of the matrix, for checks of what shares memory.
TensorRef memory_of(const QuantizedMatrix& matrix);

struct Dequantize {
  static constexpr const char* op = "quantized";
  static constexpr const char* function = "dequantize";
  QuantizedMatrix matrix;
  TensorRef y;
  Operands operands() const;
  void check() const;
};

struct Quantize {
  static constexpr const char* op = "quantized";
  static constexpr const char* function = "quantize";
  TensorRef x;
  QuantizedOutput matrix;
  Operands operands() const;
  void check() const;
};

/// The terms of an adapter, which are added to those of the matrix before a result is rounded.
struct AdapterTerms {
  TensorRef left;   ///< (rows, rank): xa, or dxa
  TensorRef right;  ///< (out, rank): B, or (rank, in): A

  bool present() const { return left.present(); }
  std::int64_t rank() const { return present() ? left.extent[1] : 0; }
};

/// y = scale · (x Wᵀ + xa Bᵀ) + residual; adapter and residual may be absent.
struct QuantizedLinearForward {
  static constexpr const char* op = "quantized";
  static constexpr const char* function = "quantized_linear_forward";
  TensorRef x;
  QuantizedMatrix weight;
  TensorRef residual, y;
  QuantizedLinearOptions options{};
  AdapterTerms adapter{};
  Operands operands() const;
  void check() const;
};

/// dx = scale · (dy W + dxa A) + addend; adapter and addend may be absent, and the addend may be dx itself.
struct QuantizedLinearBackwardInput {
  static constexpr const char* op = "quantized";
  static constexpr const char* function = "quantized_linear_backward_input";
  QuantizedMatrix weight;
  TensorRef dy, dx;
  LinearOptions options{};
  AdapterTerms adapter{};
  TensorRef addend{};
  Operands operands() const;
  void check() const;
};

struct QuantizedEmbeddingForward {
  static constexpr const char* op = "quantized";
  static constexpr const char* function = "quantized_embedding_forward";
  TensorRef ids;
  QuantizedMatrix weight;
  TensorRef y;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// Every weight of the matrix, rounded once, to T.
///
/// \param exec   the instance everything is launched on; nothing is fenced or allocated
/// \param matrix (rows, cols)
/// \param y      (rows, cols), T, overwritten
/// \throws DimensionMismatch if extents or strides do not fit, or the matrix has no data
/// \throws NotSupported if the format is none of `QuantizedFormat`
template <ExecutionSpace Exec, AnyView Y>
void dequantize(const Exec& exec, const QuantizedMatrix& matrix, const Y& y) {
  using T = Impl::scalar_t<Y>;
  const Impl::Dequantize problem{matrix, Impl::output<Exec, T, 2>(y)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView Y>
void dequantize(const QuantizedMatrix& matrix, const Y& y) {
  dequantize(Kokkos::DefaultExecutionSpace(), matrix, y);
}

/// Quantises block by block by the rules of ggml's reference code (`ggml-quants.c`, `quantize_row_*_ref`), in
/// float, where `rint` rounds halves away from zero and `d`, `m` are rounded to binary16 afterwards:
///
/// * q8_0: `d = max|x|/127`, `q = rint(x/d)`
/// * q4_0: `d = −e/8` with `e` the first x of greatest magnitude, `q = min(15, ⌊x/d + 8.5⌋)`
/// * q4_1: `m = min x`, `d = (max x − m)/15`, `q = min(15, ⌊(x − m)/d + 0.5⌋)`
/// * tq2_0, tq1_0: `d = max|x|`, `q = rint(x/d) + 1`: exact for weights that are −d, 0 or d already.
///   BitNet's rule, one scale for all, is `ternary_quantize`.
///
/// nf4 follows bitsandbytes, in float: the code of x is the number of middles between neighbouring values of the
/// table that are below `x·(1/max(a, 10⁻³⁸))`, `a = max|x|` of the block. The offset `m` is the mean of all `a`,
/// summed in double; `n` is `max|a − m|` of 256 blocks, and the code of a block the same number for
/// `(a − m)·(1/max(n, 10⁻³⁸))` in the dynamic map. docs/blocks/quantized.md says what bitsandbytes itself computes.
///
/// Where the columns do not fill the last block, the rest of it is stored as zeros of x. A block with a NaN or
/// an infinity gets NaN for `d`; a `d` beyond binary16 becomes infinity. A matrix of NF4 with a NaN or an infinity gets
/// NaN for `m`, which makes all its weights NaN.
///
/// \param exec   the instance
/// \param x      (rows, cols), T
/// \param matrix (rows, cols), overwritten; shares no memory with `x`
/// \throws DimensionMismatch if extents or strides do not fit, or the matrix has no data
/// \throws NotSupported if the format is none of `QuantizedFormat`
template <ExecutionSpace Exec, AnyView X>
void quantize(const Exec& exec, const X& x, const QuantizedOutput& matrix) {
  using T = Impl::scalar_t<X>;
  const Impl::Quantize problem{Impl::input<Exec, T, 2>(x), matrix};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView X>
void quantize(const X& x, const QuantizedOutput& matrix) {
  quantize(Kokkos::DefaultExecutionSpace(), x, matrix);
}

namespace Impl {
/// A matrix without memory, packed, for questions about its extents.
template <Scalar T>
TensorRef matrix_of_extents(std::int64_t rows, std::int64_t cols) {
  TensorRef ref;
  ref.dtype = dtype_of<T>;
  ref.rank = 2;
  ref.extent = {rows, cols};
  ref.stride = {cols, 1};
  return ref;
}
}  // namespace Impl

/// Bytes of workspace `quantized_linear_forward` needs for storage type `T`, `rows` rows of x and a weight of
/// this format and these extents (`weight.data` is not read).
template <Scalar T, ExecutionSpace Exec>
std::size_t quantized_linear_forward_workspace_bytes(const Exec&, std::int64_t rows,
                                                     const QuantizedMatrix& weight,
                                                     const QuantizedLinearOptions& options = {}) {
  return Impl::best_workspace_bytes<Exec>(
      Impl::QuantizedLinearForward{Impl::matrix_of_extents<T>(rows, weight.cols),
                                   weight,
                                   {},
                                   Impl::matrix_of_extents<T>(rows, weight.rows),
                                   options});
}

/// The same on the default instance.
template <Scalar T>
std::size_t quantized_linear_forward_workspace_bytes(std::int64_t rows, const QuantizedMatrix& weight,
                                                     const QuantizedLinearOptions& options = {}) {
  return quantized_linear_forward_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), rows, weight, options);
}

/// The linear map of each row by quantised weights: `y = scale · x Wᵀ`.
///
/// With `Activations::int8` the kernels use `d_x·q` in place of x, in blocks of 32 for q8_0, q4_0 and q4_1, in
/// whole rows for tq2_0 and tq1_0: `d_x = max|x|/127`, `q` = the integer nearest to `x·(127/max|x|)`, halves to
/// the even one. Sums of q·q are exact within a block of weights and, for ternary formats, over all blocks of a
/// row that have the same scale. A block (row) of x with `max|x| < 2⁻¹⁰⁰` counts as 0. A NaN or an infinity in
/// it makes its row of y NaN.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param x         (rows, in), T
/// \param weight    (out, in)
/// \param y         (rows, out), T, overwritten; shares no memory with `x` or `weight`
/// \param options   `activations`, `scale`, `batch_invariant`
/// \param workspace at least `quantized_linear_forward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, the weight has no data, or the
///         workspace is too small
/// \throws NotSupported if compute_t<T> does not hold `scale`, or `activations` are int8 and the weight is NF4
template <ExecutionSpace Exec, AnyView X, AnyView Y>
void quantized_linear_forward(const Exec& exec, const X& x, const QuantizedMatrix& weight, const Y& y,
                              const QuantizedLinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::QuantizedLinearForward problem{
      Impl::input<Exec, T, 2>(x), weight, {}, Impl::output<Exec, T, 2>(y), options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView Y>
void quantized_linear_forward(const X& x, const QuantizedMatrix& weight, const Y& y,
                              const QuantizedLinearOptions& options = {}, const Workspace& workspace = {}) {
  quantized_linear_forward(Kokkos::DefaultExecutionSpace(), x, weight, y, options, workspace);
}

/// The same with the residual addition fused: `y = residual + scale · x Wᵀ`, rounded once.
///
/// \param exec      the instance
/// \param x         (rows, in), T
/// \param weight    (out, in)
/// \param residual  (rows, out), T; may be `y` itself, otherwise shares no memory with it
/// \param y         (rows, out), T, overwritten; shares no memory with `x` or `weight`
/// \param options   `activations`, `scale`, `batch_invariant`
/// \param workspace at least `quantized_linear_residual_forward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, the weight has no data, or the
///         workspace is too small
/// \throws NotSupported if compute_t<T> does not hold `scale`, or `activations` are int8 and the weight is NF4
template <ExecutionSpace Exec, AnyView X, AnyView R, AnyView Y>
void quantized_linear_residual_forward(const Exec& exec, const X& x, const QuantizedMatrix& weight,
                                       const R& residual, const Y& y,
                                       const QuantizedLinearOptions& options = {},
                                       const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  const Impl::QuantizedLinearForward problem{Impl::input<Exec, T, 2>(x), weight,
                                             Impl::input<Exec, T, 2>(residual), Impl::output<Exec, T, 2>(y),
                                             options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView X, AnyView R, AnyView Y>
void quantized_linear_residual_forward(const X& x, const QuantizedMatrix& weight, const R& residual, const Y& y,
                                       const QuantizedLinearOptions& options = {},
                                       const Workspace& workspace = {}) {
  quantized_linear_residual_forward(Kokkos::DefaultExecutionSpace(), x, weight, residual, y, options,
                                    workspace);
}

/// Bytes of workspace `quantized_linear_residual_forward` needs: as many as `quantized_linear_forward`.
template <Scalar T, ExecutionSpace Exec>
std::size_t quantized_linear_residual_forward_workspace_bytes(const Exec& exec, std::int64_t rows,
                                                              const QuantizedMatrix& weight,
                                                              const QuantizedLinearOptions& options = {}) {
  return quantized_linear_forward_workspace_bytes<T>(exec, rows, weight, options);
}

/// The same on the default instance.
template <Scalar T>
std::size_t quantized_linear_residual_forward_workspace_bytes(std::int64_t rows, const QuantizedMatrix& weight,
                                                              const QuantizedLinearOptions& options = {}) {
  return quantized_linear_forward_workspace_bytes<T>(rows, weight, options);
}

/// Bytes of workspace `quantized_linear_backward_input` needs for storage type `T`, `rows` rows of dy and a
/// weight of this format and these extents (`weight.data` is not read).
template <Scalar T, ExecutionSpace Exec>
std::size_t quantized_linear_backward_input_workspace_bytes(const Exec&, std::int64_t rows,
                                                            const QuantizedMatrix& weight,
                                                            const LinearOptions& options = {}) {
  return Impl::best_workspace_bytes<Exec>(
      Impl::QuantizedLinearBackwardInput{weight, Impl::matrix_of_extents<T>(rows, weight.rows),
                                         Impl::matrix_of_extents<T>(rows, weight.cols), options});
}

/// The same on the default instance.
template <Scalar T>
std::size_t quantized_linear_backward_input_workspace_bytes(std::int64_t rows, const QuantizedMatrix& weight,
                                                            const LinearOptions& options = {}) {
  return quantized_linear_backward_input_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), rows, weight,
                                                            options);
}

/// Gradient of `quantized_linear_forward` with `Activations::full`, and of its variant with a residual, with
/// respect to `x`: `dx = scale · dy W`, rounded once (overwritten). The gradient with respect to `residual` is
/// `dy` itself; the weights are constants. So gradients pass through frozen weights to adapters beside them and
/// to the layers below (QLoRA, Dettmers et al., arXiv:2305.14314, §3).
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param weight    (out, in)
/// \param dy        (rows, out), T
/// \param dx        (rows, in), T, overwritten; shares no memory with `dy` or `weight`
/// \param options   `scale`; `allow_tf32` changes nothing today
/// \param workspace at least `quantized_linear_backward_input_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, the weight has no data, or the
///         workspace is too small
/// \throws NotSupported if compute_t<T> does not hold `scale`
template <ExecutionSpace Exec, AnyView DY, AnyView DX>
void quantized_linear_backward_input(const Exec& exec, const QuantizedMatrix& weight, const DY& dy,
                                     const DX& dx, const LinearOptions& options = {},
                                     const Workspace& workspace = {}) {
  using T = Impl::scalar_t<DY>;
  const Impl::QuantizedLinearBackwardInput problem{weight, Impl::input<Exec, T, 2>(dy),
                                                   Impl::output<Exec, T, 2>(dx), options};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView DY, AnyView DX>
void quantized_linear_backward_input(const QuantizedMatrix& weight, const DY& dy, const DX& dx,
                                     const LinearOptions& options = {}, const Workspace& workspace = {}) {
  quantized_linear_backward_input(Kokkos::DefaultExecutionSpace(), weight, dy, dx, options, workspace);
}

/// Token embedding by a quantised table: `y[row] = weight[ids[row]]`, each weight rounded once, to T. A row
/// whose id is outside [0, weight.rows) becomes NaN; nothing outside the table is read.
///
/// \param exec   the instance
/// \param ids    (rows), int32
/// \param weight (vocabulary, hidden)
/// \param y      (rows, hidden), T, overwritten
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the table has no data
/// \throws NotSupported if the format is none of `QuantizedFormat`
template <ExecutionSpace Exec, AnyView I, AnyView Y>
void quantized_embedding_forward(const Exec& exec, const I& ids, const QuantizedMatrix& weight, const Y& y) {
  using T = Impl::scalar_t<Y>;
  const Impl::QuantizedEmbeddingForward problem{Impl::input<Exec, std::int32_t, 1>(ids), weight,
                                                Impl::output<Exec, T, 2>(y)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView I, AnyView Y>
void quantized_embedding_forward(const I& ids, const QuantizedMatrix& weight, const Y& y) {
  quantized_embedding_forward(Kokkos::DefaultExecutionSpace(), ids, weight, y);
}

}  // namespace kformer
