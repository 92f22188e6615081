// SPDX-License-Identifier: MIT
#include "kformer/ops/linear.hpp"

#include <cmath>

namespace kformer::Impl {

namespace {
void check_scale(const Operands& all, const LinearOptions& options) {
  all.require_option(std::isfinite(options.scale), "scale must be finite");
}
}  // namespace

Operands LinearForward::operands() const {
  const char* called = bias.present()       ? "linear_bias_forward"
                       : residual.present() ? "linear_residual_forward"
                                            : "linear_forward";
  return Operands(called, {{"x", x}, {"weight", weight}, {"bias", bias}, {"residual", residual}, {"y", y}});
}

void LinearForward::check() const {
  const Operands all = operands();
  check_linear_forward(all, *this).require_unit_stride();
  check_scale(all, options);
}

const Operands& check_linear_forward(const Operands& all, const LinearForward& p) {
  for (const char* role : {"weight", "bias", "residual", "y"}) all.require_dtype(role, p.x.dtype);
  return all.require_extents(p.weight.extent[1] == p.x.extent[1], "weight to have one column per column of x")
      .require_extents(p.y.has_extents({p.x.extent[0], p.weight.extent[0]}),
                       "y to have the rows of x and one column per row of weight")
      .require_extents(!p.bias.present() || p.bias.has_extents({p.weight.extent[0]}),
                       "bias to have one element per row of weight")
      .require_extents(!p.residual.present() || p.residual.same_extents(p.y),
                       "residual to have the extents of y");
}

Operands LinearBackwardInput::operands() const {
  return Operands(function, {{"weight", weight}, {"dy", dy}, {"dx", dx}});
}

namespace {
void check_input(const Operands& all, const LinearBackwardInput& p) {
  for (const char* role : {"dy", "dx"}) all.require_dtype(role, p.weight.dtype);
  all.require_extents(p.dy.extent[1] == p.weight.extent[0], "dy to have one column per row of weight")
      .require_extents(p.dx.has_extents({p.dy.extent[0], p.weight.extent[1]}),
                       "dx to have the rows of dy and one column per column of weight")
      .require_unit_stride();
  check_scale(all, p.options);
}

void check_weight(const Operands& all, const LinearBackwardWeight& p) {
  all.require_dtype("dy", p.x.dtype);
  all.require_dtype("dweight", compute_dtype(p.x.dtype))
      .require_extents(p.dy.extent[0] == p.x.extent[0], "dy to have the rows of x")
      .require_extents(p.dweight.has_extents({p.dy.extent[1], p.x.extent[1]}),
                       "dweight to have one row per column of dy and one column per column of x")
      .require_unit_stride();
  check_scale(all, p.options);
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
}

Operands LinearBiasBackward::operands() const { return Operands(function, {{"dy", dy}, {"dbias", dbias}}); }

void LinearBiasBackward::check() const {
  operands()
      .require_dtype("dbias", compute_dtype(dy.dtype))
      .require_extents(dbias.has_extents({dy.extent[1]}), "dbias to have one element per column of dy")
      .require_unit_stride();
}

}  // namespace kformer::Impl
