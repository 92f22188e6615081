// SPDX-License-Identifier: MIT
#include "kformer/ops/lora.hpp"

#include <cmath>
#include <string>

#include "ops/common/held_numbers.hpp"

namespace kformer::Impl {

namespace {

constexpr const char* names_of_b[most_lora_parts] = {"b[0]", "b[1]", "b[2]"};

TensorRef b_of(const LoraFactors& parts, std::size_t i) { return parts.part[i].b; }

// What forward and backward have in common: `weight`, `a` and the parts.
const Operands& check_parts(const Operands& all, const TensorRef& weight, const TensorRef& a,
                            const LoraFactors& parts) {
  std::int64_t column = 0;
  bool in_order = true, finite = true;
  for (const LoraFactor& part : parts) {
    in_order = in_order && part.column >= column && part.column + part.columns() <= weight.extent[0];
    column = part.column + part.columns();
    finite = finite && std::isfinite(part.scale);
  }
  all.require_extents(in_order, "the parts to adapt columns of y in ascending order, without overlap")
      .require_extents(a.has_extents({parts.rank(), weight.extent[1]}),
                       "a to have one row per rank of the parts, " + std::to_string(parts.rank()) +
                           ", and one column per column of weight")
      .require_option(finite, "the scale of every part must be finite");
  for (const LoraFactor& part : parts) require_held(all, "scale", part.scale, compute_dtype(weight.dtype));
  return all;
}

}  // namespace

std::int64_t LoraFactors::rank() const {
  std::int64_t sum = 0;
  for (const LoraFactor& one : *this) sum += one.rank();
  return sum;
}

Operands LoraForward::operands() const {
  const char* called = bias.present()       ? "lora_bias_forward"
                       : residual.present() ? "lora_residual_forward"
                                            : "lora_forward";
  return Operands(called, {{"x", x},
                           {"weight", weight},
                           {"bias", bias},
                           {"residual", residual},
                           {"a", a},
                           {names_of_b[0], b_of(parts, 0)},
                           {names_of_b[1], b_of(parts, 1)},
                           {names_of_b[2], b_of(parts, 2)},
                           {"xa", xa},
                           {"y", y}});
}

void LoraForward::check() const {
  const Operands all = operands();
  all.require_floating("x");
  for (const char* role : {"weight", "bias", "residual", "a", "b[0]", "b[1]", "b[2]", "xa", "y"})
    all.require_dtype(role, x.dtype);
  const std::int64_t rows = x.extent[0], out = weight.extent[0];
  all.require_extents(weight.extent[1] == x.extent[1], "weight to have one column per column of x")
      .require_extents(y.has_extents({rows, out}), "y to have the rows of x and one column per row of weight")
      .require_extents(!bias.present() || bias.has_extents({out}), "bias to have one element per row of weight")
      .require_extents(!residual.present() || residual.same_extents(y), "residual to have the extents of y");
  check_parts(all, weight, a, parts)
      .require_extents(xa.has_extents({rows, parts.rank()}),
                       "xa to have the rows of x and one column per row of a")
      .require_unit_stride()
      .require_disjoint("xa")
      .require_disjoint("y", {"residual"});
}

Operands LoraBackwardInput::operands() const {
  return Operands(function, {{"weight", weight},
                             {"a", a},
                             {names_of_b[0], b_of(parts, 0)},
                             {names_of_b[1], b_of(parts, 1)},
                             {names_of_b[2], b_of(parts, 2)},
                             {"dy", dy},
                             {"dxa", dxa},
                             {"addend", addend},
                             {"dx", dx}});
}

void LoraBackwardInput::check() const {
  const Operands all = operands();
  all.require_floating("weight");
  for (const char* role : {"a", "b[0]", "b[1]", "b[2]", "dy", "dxa", "addend", "dx"})
    all.require_dtype(role, weight.dtype);
  const std::int64_t rows = dy.extent[0];
  all.require_extents(dy.extent[1] == weight.extent[0], "dy to have one column per row of weight")
      .require_extents(dx.has_extents({rows, weight.extent[1]}),
                       "dx to have the rows of dy and one column per column of weight")
      .require_extents(!addend.present() || addend.same_extents(dx), "addend to have the extents of dx");
  check_parts(all, weight, a, parts)
      .require_extents(dxa.has_extents({rows, parts.rank()}),
                       "dxa to have the rows of dy and one column per row of a")
      .require_unit_stride()
      .require_disjoint("dxa")
      .require_disjoint("dx", {"addend"});
}

}  // namespace kformer::Impl
