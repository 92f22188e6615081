// SPDX-License-Identifier: MIT
#include "kformer/ops/linear.hpp"

#include <cmath>

#include "ops/common/held_numbers.hpp"

namespace kformer::Impl {

namespace {
// Of a matrix, or of each matrix of a batch.
std::int64_t rows(const TensorRef& t) { return t.extent[static_cast<std::size_t>(t.rank - 2)]; }
std::int64_t cols(const TensorRef& t) { return t.extent[static_cast<std::size_t>(t.rank - 1)]; }

void check_batches(const Operands& all, std::initializer_list<TensorRef> matrices) {
  const TensorRef& first = *matrices.begin();
  for (const TensorRef& t : matrices)
    all.require_extents(
        !t.present() || (t.rank == first.rank && (t.rank == 2 || t.extent[0] == first.extent[0])),
        "all operands to be single matrices, or all batches of the same size");
}
}  // namespace

void check_linear_options(const Operands& all, const LinearOptions& options, DType stored) {
  all.require_option(std::isfinite(options.scale), "scale must be finite");
  require_held(all, "scale", options.scale, compute_dtype(stored));
}

Operands LinearForward::operands() const {
  const char* called = bias.present()       ? "linear_bias_forward"
                       : residual.present() ? "linear_residual_forward"
                                            : "linear_forward";
  return Operands(called, {{"x", x}, {"weight", weight}, {"bias", bias}, {"residual", residual}, {"y", y}});
}

void LinearForward::check() const {
  const Operands all = operands();
  check_linear_forward(all, *this).require_unit_stride().require_disjoint("y", {"residual"});
}

const Operands& check_linear_forward(const Operands& all, const LinearForward& p) {
  all.require_floating("x");
  for (const char* role : {"weight", "bias", "residual", "y"}) all.require_dtype(role, p.x.dtype);
  check_linear_options(all, p.options, p.x.dtype);
  check_batches(all, {p.x, p.weight, p.y, p.residual});
  return all.require_extents(cols(p.weight) == cols(p.x), "weight to have one column per column of x")
      .require_extents(rows(p.y) == rows(p.x) && cols(p.y) == rows(p.weight),
                       "y to have the rows of x and one column per row of weight")
      .require_extents(!p.bias.present() || p.bias.has_extents({rows(p.weight)}),
                       "bias to have one element per row of weight")
      .require_extents(!p.residual.present() || p.residual.same_extents(p.y),
                       "residual to have the extents of y");
}

Operands LinearBackwardInput::operands() const {
  return Operands(function, {{"weight", weight}, {"dy", dy}, {"dx", dx}});
}

namespace {
void check_input(const Operands& all, const LinearBackwardInput& p) {
  all.require_floating("weight");
  for (const char* role : {"dy", "dx"}) all.require_dtype(role, p.weight.dtype);
  check_batches(all, {p.weight, p.dy, p.dx});
  all.require_extents(cols(p.dy) == rows(p.weight), "dy to have one column per row of weight")
      .require_extents(rows(p.dx) == rows(p.dy) && cols(p.dx) == cols(p.weight),
                       "dx to have the rows of dy and one column per column of weight")
      .require_unit_stride()
      .require_disjoint("dx");
  check_linear_options(all, p.options, p.weight.dtype);
}

void check_weight(const Operands& all, const LinearBackwardWeight& p) {
  all.require_floating("x").require_dtype("dy", p.x.dtype);
  check_batches(all, {p.x, p.dy, p.dweight});
  all.require_dtype("dweight", compute_dtype(p.x.dtype))
      .require_extents(rows(p.dy) == rows(p.x), "dy to have the rows of x")
      .require_extents(rows(p.dweight) == cols(p.dy) && cols(p.dweight) == cols(p.x),
                       "dweight to have one row per column of dy and one column per column of x")
      .require_unit_stride()
      .require_disjoint("dweight");
  check_linear_options(all, p.options, p.x.dtype);
}
}  // namespace

void LinearBackwardInput::check() const { check_input(operands(), *this); }

Operands LinearBackwardWeight::operands() const {
  return Operands(function, {{"x", x}, {"dy", dy}, {"dweight", dweight}});
}

void LinearBackwardWeight::check() const { check_weight(operands(), *this); }

void check_linear_backward(const LinearBackwardInput& input, const LinearBackwardWeight& weight) {
  const Operands all("linear_backward", {{"x", weight.x},
                                         {"weight", input.weight},
                                         {"dy", input.dy},
                                         {"dx", input.dx},
                                         {"dweight", weight.dweight}});
  check_weight(all, weight);
  all.require_dtype("weight", weight.x.dtype);
  check_input(all, input);
  all.require_addresses();
}

Operands LinearBackwardBias::operands() const { return Operands(function, {{"dy", dy}, {"dbias", dbias}}); }

void LinearBackwardBias::check() const {
  operands()
      .require_floating("dy")
      .require_dtype("dbias", compute_dtype(dy.dtype))
      .require_extents(dbias.has_extents({dy.extent[1]}), "dbias to have one element per column of dy")
      .require_unit_stride()
      .require_disjoint("dbias");
}

}  // namespace kformer::Impl
