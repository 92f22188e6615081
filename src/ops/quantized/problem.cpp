// SPDX-License-Identifier: MIT
#include <cmath>

#include "kformer/core/option_checks.hpp"
#include "kformer/ops/quantized.hpp"
#include "ops/common/held_numbers.hpp"

namespace kformer::Impl {

TensorRef operand(const QuantizedMatrix& matrix) {
  TensorRef ref;
  ref.data = const_cast<std::byte*>(matrix.data);
  ref.dtype = DType::u8;
  ref.rank = 2;
  ref.extent = {matrix.rows, matrix.cols};
  ref.stride = {matrix.cols, 1};
  return ref;
}

TensorRef memory_of(const QuantizedMatrix& matrix) {
  TensorRef ref = operand(matrix);
  ref.rank = 1;
  ref.extent = {static_cast<std::int64_t>(quantized_bytes(matrix.format, matrix.rows, matrix.cols))};
  ref.stride = {1};
  return ref;
}

namespace {
const Operands& check_data(const Operands& all, const char* role, const QuantizedMatrix& matrix) {
  require_enumerator(all, "format", matrix.format);
  const bool empty = matrix.rows == 0 || matrix.cols == 0;
  return all
      .require_extents(matrix.rows >= 0 && matrix.cols >= 0, std::string(role) + " to have no negative extent")
      .require_extents(empty || matrix.data != nullptr, std::string(role) + " to have data");
}
}  // namespace

Operands Dequantize::operands() const { return Operands(function, {{"matrix", operand(matrix)}, {"y", y}}); }

void Dequantize::check() const {
  check_data(operands(), "matrix", matrix)
      .require_floating("y")
      .require_extents(y.has_extents({matrix.rows, matrix.cols}), "y to have the extents of matrix")
      .require_unit_stride();
  operands().with("matrix", memory_of(matrix)).require_disjoint("y");
}

Operands Quantize::operands() const { return Operands(function, {{"x", x}, {"matrix", operand(matrix)}}); }

void Quantize::check() const {
  check_data(operands(), "matrix", matrix)
      .require_floating("x")
      .require_extents(x.has_extents({matrix.rows, matrix.cols}), "x to have the extents of matrix")
      .require_unit_stride();
  operands().with("matrix", memory_of(matrix)).require_disjoint("matrix");
}

Operands QuantizedLinearForward::operands() const {
  return Operands(residual.present() ? "quantized_linear_residual_forward" : "quantized_linear_forward",
                  {{"x", x},
                   {"weight", operand(weight)},
                   {"xa", adapter.left},
                   {"b", adapter.right},
                   {"residual", residual},
                   {"y", y}});
}

void QuantizedLinearForward::check() const {
  const Operands all = operands();
  all.require_floating("x");
  for (const char* role : {"xa", "b", "residual", "y"}) all.require_dtype(role, x.dtype);
  check_data(all, "weight", weight)
      .require_extents(weight.cols == x.extent[1], "weight to have one column per column of x")
      .require_extents(y.has_extents({x.extent[0], weight.rows}),
                       "y to have the rows of x and one column per row of weight")
      .require_extents(!residual.present() || residual.same_extents(y), "residual to have the extents of y")
      .require_extents(!adapter.present() || (adapter.left.has_extents({x.extent[0], adapter.rank()}) &&
                                              adapter.right.has_extents({weight.rows, adapter.rank()})),
                       "xa to have the rows of x and b those of weight, with equal columns")
      .require_unit_stride()
      .require_option(std::isfinite(options.scale), "scale must be finite");
  require_held(all, "scale", options.scale, compute_dtype(x.dtype));
  require_enumerator(all, "activations", options.activations);
  all.require_option(
      options.activations == Activations::full || has_integer_codes(weight.format),
      "weights in NF4 are values of a table, which 8-bit activations cannot be multiplied with as "
      "integers; use Activations::full");
  all.require_option(options.activations == Activations::full || !adapter.present(),
                     "an adapter needs activations as they are; use Activations::full");
  all.with("weight", memory_of(weight)).require_disjoint("y", {"residual"});
}

Operands QuantizedLinearBackwardInput::operands() const {
  return Operands(function, {{"weight", operand(weight)},
                             {"dy", dy},
                             {"dxa", adapter.left},
                             {"a", adapter.right},
                             {"addend", addend},
                             {"dx", dx}});
}

void QuantizedLinearBackwardInput::check() const {
  const Operands all = operands();
  all.require_floating("dy");
  for (const char* role : {"dxa", "a", "addend", "dx"}) all.require_dtype(role, dy.dtype);
  check_data(all, "weight", weight)
      .require_extents(weight.rows == dy.extent[1], "weight to have one row per column of dy")
      .require_extents(dx.has_extents({dy.extent[0], weight.cols}),
                       "dx to have the rows of dy and the columns of weight")
      .require_extents(!addend.present() || addend.same_extents(dx), "addend to have the extents of dx")
      .require_extents(!adapter.present() || (adapter.left.has_extents({dy.extent[0], adapter.rank()}) &&
                                              adapter.right.has_extents({adapter.rank(), weight.cols})),
                       "dxa to have the rows of dy and a the columns of weight, with one row per column of dxa")
      .require_unit_stride()
      .require_option(std::isfinite(options.scale), "scale must be finite");
  require_held(all, "scale", options.scale, compute_dtype(dy.dtype));
  all.with("weight", memory_of(weight)).require_disjoint("dx", {"addend"});
}

Operands QuantizedEmbeddingForward::operands() const {
  return Operands(function, {{"ids", ids}, {"weight", operand(weight)}, {"y", y}});
}

void QuantizedEmbeddingForward::check() const {
  check_data(operands(), "weight", weight)
      .require_floating("y")
      .require_dtype("ids", DType::i32)
      .require_extents(y.has_extents({ids.extent[0], weight.cols}),
                       "y to have one row per id and the columns of weight")
      .require_unit_stride();
  operands().with("weight", memory_of(weight)).require_disjoint("y");
}

}  // namespace kformer::Impl
