// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/linear.hpp"
#include "kformer/ops/quantized.hpp"

/// \file
/// Ternary weights as BitNet b1.58 has them (Ma et al., The Era of 1-bit LLMs, arXiv:2402.17764, section 2):
/// quantisation by the mean magnitude, and a linear map that trains through it. Inference with weights that are
/// ternary already is `quantized_linear_forward`.

namespace kformer {

/// What a ternary linear map takes besides its operands.
struct TernaryLinearOptions {
  QuantizedFormat format = QuantizedFormat::tq2_0;  ///< of the weights in the workspace; tq2_0 is faster
};

namespace Impl {

struct TernaryQuantize {
  static constexpr const char* op = "ternary";
  static constexpr const char* function = "ternary_quantize";
  TensorRef weight;
  QuantizedOutput matrix;
  Operands operands() const;
  void check() const;
};

struct TernaryActivations {
  static constexpr const char* op = "ternary";
  static constexpr const char* function = "ternary_activations";
  TensorRef x, y;
  Operands operands() const;
  void check() const;
};

/// The operands of a ternary linear map, checked before any part is launched; forward has no dy, dx and
/// dweight.
struct TernaryLinear {
  TensorRef x, weight, y, dy, dx, dweight;
  TernaryLinearOptions options{};
  Operands operands() const;
  void check(const Workspace& workspace, std::size_t needed) const;
};

/// The layout of the workspace of a ternary linear map.
struct TernaryWorkspace {
  std::size_t packed = 0;   ///< bytes of the quantised weight, at the beginning
  std::size_t numbers = 0;  ///< behind it: the weight as numbers, backward only
  std::size_t inputs = 0;   ///< behind that: x as numbers of 8 bits, backward only
  std::size_t rest = 0;     ///< behind that: of the functions that are called

  /// Every part begins at a multiple of 64 bytes.
  TernaryWorkspace(std::int64_t rows, std::int64_t in, std::int64_t out, QuantizedFormat format,
                   std::size_t element, std::size_t of_calls);
  std::size_t bytes() const { return packed + numbers + inputs + rest; }
};

}  // namespace Impl

/// Bytes of workspace `ternary_quantize` needs for a matrix; its data are not used.
template <ExecutionSpace Exec>
std::size_t ternary_quantize_workspace_bytes(const Exec&, const QuantizedOutput& matrix) {
  Impl::TernaryQuantize problem;
  problem.weight.rank = 2;
  problem.weight.extent = {matrix.rows, matrix.cols};
  problem.matrix = matrix;
  return Impl::best_workspace_bytes<Exec>(problem);
}

/// The same on the default instance.
inline std::size_t ternary_quantize_workspace_bytes(const QuantizedOutput& matrix) {
  return ternary_quantize_workspace_bytes(Kokkos::DefaultExecutionSpace(), matrix);
}

/// Quantises a weight by its mean magnitude (equations 1 to 3): `γ = mean|W|` over the whole matrix,
/// `q = max(−1, min(1, rint(W/γ)))`, halves away from zero. γ, computed in double and rounded to float for the
/// codes, is stored in every block, rounded to binary16. A weight of zeros gives zeros, one with a NaN or an
/// infinity gives NaN.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param weight    (out, in), T
/// \param matrix    (out, in), tq2_0 or tq1_0, overwritten; shares no memory with `weight`
/// \param workspace at least `ternary_quantize_workspace_bytes`
/// \throws DimensionMismatch if extents or strides do not fit, the matrix has no data, or the workspace is too
///        small
/// \throws NotSupported if the format of the matrix is not ternary
template <ExecutionSpace Exec, AnyView W>
void ternary_quantize(const Exec& exec, const W& weight, const QuantizedOutput& matrix,
                      const Workspace& workspace = {}) {
  using T = Impl::scalar_t<W>;
  const Impl::TernaryQuantize problem{Impl::input<Exec, T, 2>(weight), matrix};
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView W>
void ternary_quantize(const W& weight, const QuantizedOutput& matrix, const Workspace& workspace = {}) {
  ternary_quantize(Kokkos::DefaultExecutionSpace(), weight, matrix, workspace);
}

/// What the rows of x are after quantisation to 8 bits (equation 4 of arXiv:2402.17764's predecessor BitNet,
/// arXiv:2310.11453): `y = d·q` with `d = max|x|/127` of the row and `q` the integer nearest to x/d, exactly as
/// `quantized_linear_forward` has them for ternary weights, rounded to T.
///
/// \param exec the instance
/// \param x    (rows, in), T
/// \param y    (rows, in), T, overwritten; may be `x` itself
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView X, AnyView Y>
void ternary_activations(const Exec& exec, const X& x, const Y& y) {
  using T = Impl::scalar_t<X>;
  const Impl::TernaryActivations problem{Impl::input<Exec, T, 2>(x), Impl::output<Exec, T, 2>(y)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView X, AnyView Y>
void ternary_activations(const X& x, const Y& y) {
  ternary_activations(Kokkos::DefaultExecutionSpace(), x, y);
}

namespace Impl {

template <class T, class Exec>
TernaryWorkspace ternary_workspace(const Exec& exec, std::int64_t rows, std::int64_t in, std::int64_t out,
                                   const TernaryLinearOptions& options, bool backward) {
  const std::size_t quantising = ternary_quantize_workspace_bytes(exec, {options.format, nullptr, out, in});
  const std::size_t product = quantized_linear_forward_workspace_bytes<T>(
      exec, rows, {options.format, nullptr, out, in}, {.activations = Activations::int8});
  return {rows,
          in,
          out,
          options.format,
          backward ? sizeof(T) : 0,
          std::max(quantising, backward ? linear_backward_workspace_bytes(exec) : product)};
}

/// A part of a workspace.
inline Workspace part_of(const Workspace& workspace, std::size_t begin, std::size_t bytes) {
  Workspace part;
  part.data = static_cast<std::byte*>(workspace.data) + begin;
  part.bytes = bytes;
  return part;
}

template <class T, class Exec>
auto matrix_at(const Exec&, const Workspace& workspace, std::size_t begin, std::size_t rows, std::size_t cols) {
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  return Kokkos::View<T**, Kokkos::LayoutRight, typename Exec::memory_space, Unmanaged>(
      reinterpret_cast<T*>(static_cast<std::byte*>(workspace.data) + begin), rows, cols);
}

}  // namespace Impl

/// Bytes of workspace `ternary_linear_forward` needs for storage type `T`: the quantised weight, and what
/// quantising takes.
template <Scalar T, ExecutionSpace Exec>
std::size_t ternary_linear_forward_workspace_bytes(const Exec& exec, std::int64_t rows, std::int64_t in,
                                                   std::int64_t out, const TernaryLinearOptions& options = {}) {
  return Impl::ternary_workspace<T>(exec, rows, in, out, options, false).bytes();
}

/// The same on the default instance.
template <Scalar T>
std::size_t ternary_linear_forward_workspace_bytes(std::int64_t rows, std::int64_t in, std::int64_t out,
                                                   const TernaryLinearOptions& options = {}) {
  return ternary_linear_forward_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), rows, in, out, options);
}

/// Bytes of workspace `ternary_linear_backward` needs for storage type `T`: besides those of forward, the
/// quantised weight and the quantised x as numbers, and what lets a library choose among all its products.
template <Scalar T, ExecutionSpace Exec>
std::size_t ternary_linear_backward_workspace_bytes(const Exec& exec, std::int64_t rows, std::int64_t in,
                                                    std::int64_t out,
                                                    const TernaryLinearOptions& options = {}) {
  return Impl::ternary_workspace<T>(exec, rows, in, out, options, true).bytes();
}

/// The same on the default instance.
template <Scalar T>
std::size_t ternary_linear_backward_workspace_bytes(std::int64_t rows, std::int64_t in, std::int64_t out,
                                                    const TernaryLinearOptions& options = {}) {
  return ternary_linear_backward_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), rows, in, out, options);
}

/// The linear map of BitNet b1.58 during training: `y = x̂ Ŵᵀ`, with `Ŵ` by `ternary_quantize` from the master
/// weight and `x̂` by `ternary_activations`, by `quantized_linear_forward` with `Activations::int8`.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param x         (rows, in), T
/// \param weight    (out, in), T, the master weight
/// \param y         (rows, out), T, overwritten; shares no memory with `x` or `weight`
/// \param options   the format of the quantised weight
/// \param workspace at least `ternary_linear_forward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if the format is not ternary
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView Y>
void ternary_linear_forward(const Exec& exec, const X& x, const W& weight, const Y& y,
                            const TernaryLinearOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  Impl::TernaryLinear all;
  all.x = Impl::input<Exec, T, 2>(x), all.weight = Impl::input<Exec, T, 2>(weight),
  all.y = Impl::output<Exec, T, 2>(y), all.options = options;
  const auto parts = Impl::ternary_workspace<T>(exec, all.x.extent[0], all.weight.extent[1],
                                                all.weight.extent[0], options, false);
  all.check(workspace, parts.bytes());
  const QuantizedOutput packed{options.format, static_cast<std::byte*>(workspace.data), all.weight.extent[0],
                               all.weight.extent[1]};
  const Workspace rest = Impl::part_of(workspace, parts.packed, parts.rest);
  ternary_quantize(exec, weight, packed, rest);
  quantized_linear_forward(exec, x, packed, y, {.activations = Activations::int8}, rest);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView Y>
void ternary_linear_forward(const X& x, const W& weight, const Y& y, const TernaryLinearOptions& options = {},
                            const Workspace& workspace = {}) {
  ternary_linear_forward(Kokkos::DefaultExecutionSpace(), x, weight, y, options, workspace);
}

/// Gradients of `ternary_linear_forward` through both roundings as if they were not there (straight-through
/// estimator; The Era of 1-bit LLMs: Training Tips, Code and FAQ): `dx = dy Ŵ`, `dweight += dyᵀ x̂`, with the
/// quantised weight and activations of forward, which are computed again and rounded to T. The scales are not
/// differentiated.
///
/// \param exec      the instance
/// \param x         (rows, in), T
/// \param weight    (out, in), T, the master weight
/// \param dy        (rows, out), T
/// \param dx        (rows, in), T, overwritten; shares no memory with the inputs
/// \param dweight   (out, in), compute_t<T>, accumulated; shares no memory with the inputs
/// \param options   the format of the quantised weight
/// \param workspace at least `ternary_linear_backward_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if the format is not ternary
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView DY, AnyView DX, AnyView DW>
void ternary_linear_backward(const Exec& exec, const X& x, const W& weight, const DY& dy, const DX& dx,
                             const DW& dweight, const TernaryLinearOptions& options = {},
                             const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  Impl::TernaryLinear all;
  all.x = Impl::input<Exec, T, 2>(x), all.weight = Impl::input<Exec, T, 2>(weight), all.options = options;
  all.dy = Impl::input<Exec, T, 2>(dy), all.dx = Impl::output<Exec, T, 2>(dx),
  all.dweight = Impl::output<Exec, compute_t<T>, 2>(dweight);
  const std::int64_t rows = all.x.extent[0], in = all.weight.extent[1], out = all.weight.extent[0];
  const auto parts = Impl::ternary_workspace<T>(exec, rows, in, out, options, true);
  all.check(workspace, parts.bytes());
  const QuantizedOutput packed{options.format, static_cast<std::byte*>(workspace.data), out, in};
  const auto numbers = Impl::matrix_at<T>(exec, workspace, parts.packed, weight.extent(0), weight.extent(1));
  const auto inputs =
      Impl::matrix_at<T>(exec, workspace, parts.packed + parts.numbers, x.extent(0), x.extent(1));
  const Workspace rest = Impl::part_of(workspace, parts.bytes() - parts.rest, parts.rest);
  ternary_quantize(exec, weight, packed, rest);
  dequantize(exec, packed, numbers);
  ternary_activations(exec, x, inputs);
  linear_backward(exec, inputs, numbers, dy, dx, dweight, {}, rest);
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView DY, AnyView DX, AnyView DW>
void ternary_linear_backward(const X& x, const W& weight, const DY& dy, const DX& dx, const DW& dweight,
                             const TernaryLinearOptions& options = {}, const Workspace& workspace = {}) {
  ternary_linear_backward(Kokkos::DefaultExecutionSpace(), x, weight, dy, dx, dweight, options, workspace);
}

}  // namespace kformer
