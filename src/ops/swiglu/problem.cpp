// SPDX-License-Identifier: MIT
#include "kformer/ops/swiglu.hpp"

namespace kformer::Impl {

Operands SwigluForward::operands() const { return Operands(function, {{"gate", gate}, {"up", up}, {"y", y}}); }

void SwigluForward::check() const {
  operands()
      .require_dtype("up", gate.dtype)
      .require_dtype("y", gate.dtype)
      .require_extents(up.same_extents(gate) && y.same_extents(gate), "up and y to have the extents of gate")
      .require_unit_stride();
}

Operands SwigluBackward::operands() const {
  return Operands(function, {{"gate", gate}, {"up", up}, {"dy", dy}, {"dgate", dgate}, {"dup", dup}});
}

void SwigluBackward::check() const {
  const Operands all = operands();
  for (const char* role : {"up", "dy", "dgate", "dup"}) all.require_dtype(role, gate.dtype);
  all.require_extents(
         up.same_extents(gate) && dy.same_extents(gate) && dgate.same_extents(gate) && dup.same_extents(gate),
         "up, dy, dgate and dup to have the extents of gate")
      .require_unit_stride();
}

}  // namespace kformer::Impl
