// SPDX-License-Identifier: MIT
#include "kformer/ops/swiglu.hpp"

#include "kformer/ops/swiglu_mlp.hpp"

namespace kformer::Impl {

Operands SwigluForward::operands() const { return Operands(function, {{"gate", gate}, {"up", up}, {"y", y}}); }

void SwigluForward::check() const {
  operands()
      .require_floating("gate")
      .require_dtype("up", gate.dtype)
      .require_dtype("y", gate.dtype)
      .require_extents(up.same_extents(gate) && y.same_extents(gate), "up and y to have the extents of gate")
      .require_unit_stride()
      .require_disjoint("y", {"gate", "up"});
}

Operands SwigluBackward::operands() const {
  return Operands(function, {{"gate", gate}, {"up", up}, {"dy", dy}, {"dgate", dgate}, {"dup", dup}});
}

void SwigluBackward::check() const {
  const Operands all = operands();
  all.require_floating("gate");
  for (const char* role : {"up", "dy", "dgate", "dup"}) all.require_dtype(role, gate.dtype);
  all.require_extents(
         up.same_extents(gate) && dy.same_extents(gate) && dgate.same_extents(gate) && dup.same_extents(gate),
         "up, dy, dgate and dup to have the extents of gate")
      .require_unit_stride()
      .require_disjoint("dgate", {"gate", "up", "dy"})
      .require_disjoint("dup", {"gate", "up", "dy"});
}

namespace {

/// What the extents of forward and backward have in common.
const Operands& require_mlp_extents(const Operands& all, const TensorRef& x, const TensorRef& weight_gate_up,
                                    const TensorRef& weight_down, const TensorRef& gate_up,
                                    const TensorRef& product) {
  const std::int64_t rows = x.extent[0], hidden = x.extent[1], intermediate = weight_down.extent[1];
  return all
      .require_extents(weight_gate_up.has_extents({2 * intermediate, hidden}) &&
                           weight_down.has_extents({hidden, intermediate}),
                       "weight_gate_up to be (2 intermediate, hidden) and weight_down (hidden, intermediate), "
                       "with the columns of x as hidden")
      .require_extents(
          gate_up.has_extents({rows, 2 * intermediate}) && product.has_extents({rows, intermediate}),
          "gate_up to be (rows, 2 intermediate) and product (rows, intermediate)");
}

}  // namespace

Operands SwigluMlpForward::operands() const {
  return Operands(function, {{"x", x},
                             {"weight_gate_up", weight_gate_up},
                             {"weight_down", weight_down},
                             {"gate_up", gate_up},
                             {"product", product},
                             {"y", y}});
}

void SwigluMlpForward::check(const Workspace& workspace) const {
  const Operands all = operands();
  all.require_floating("x");
  for (const char* role : {"weight_gate_up", "weight_down", "gate_up", "product", "y"})
    all.require_dtype(role, x.dtype);
  require_mlp_extents(all, x, weight_gate_up, weight_down, gate_up, product)
      .require_extents(y.same_extents(x), "y to have the extents of x")
      .require_unit_stride()
      .require_disjoint("gate_up")
      .require_disjoint("product")
      .require_disjoint("y", {"x"})
      .require_addresses()
      .require_workspace(workspace, 0);
}

Operands SwigluMlpBackward::operands() const {
  return Operands(function, {{"x", x},
                             {"weight_gate_up", weight_gate_up},
                             {"weight_down", weight_down},
                             {"gate_up", gate_up},
                             {"product", product},
                             {"dy", dy},
                             {"dproduct", dproduct},
                             {"dgate_up", dgate_up},
                             {"dx", dx},
                             {"dweight_gate_up", dweight_gate_up},
                             {"dweight_down", dweight_down}});
}

void SwigluMlpBackward::check(const Workspace& workspace) const {
  const Operands all = operands();
  all.require_floating("x");
  for (const char* role :
       {"weight_gate_up", "weight_down", "gate_up", "product", "dy", "dproduct", "dgate_up", "dx"})
    all.require_dtype(role, x.dtype);
  for (const char* role : {"dweight_gate_up", "dweight_down"}) all.require_dtype(role, compute_dtype(x.dtype));
  require_mlp_extents(all, x, weight_gate_up, weight_down, gate_up, product)
      .require_extents(dy.same_extents(x) && dx.same_extents(x), "dy and dx to have the extents of x")
      .require_extents(dproduct.same_extents(product) && dgate_up.same_extents(gate_up),
                       "dproduct and dgate_up to have the extents of product and gate_up")
      .require_extents(dweight_gate_up.same_extents(weight_gate_up) && dweight_down.same_extents(weight_down),
                       "dweight_gate_up and dweight_down to have the extents of the weights")
      .require_unit_stride()
      .require_disjoint("dproduct", {"product"})
      .require_disjoint("dgate_up", {"gate_up"})
      .require_disjoint("dx", {"dy", "x"})
      .require_disjoint("dweight_gate_up")
      .require_disjoint("dweight_down")
      .require_addresses()
      .require_workspace(workspace, 0);
}

}  // namespace kformer::Impl
