// SPDX-License-Identifier: MIT
#include "kformer/ops/linear_epilogues.hpp"

#include <algorithm>

#include "kformer/core/option_checks.hpp"
#include "kformer/core/tensor_parts.hpp"

namespace kformer::Impl {

Operands LinearSwigluForward::operands() const {
  return Operands(function, {{"x", x}, {"weight", weight}, {"gate_up", gate_up}, {"product", product}});
}

void LinearSwigluForward::check() const {
  const Operands all = operands();
  all.require_floating("x");
  for (const char* role : {"weight", "gate_up", "product"}) all.require_dtype(role, x.dtype);
  check_linear_options(all, options, x.dtype);
  const std::int64_t rows = x.extent[0], intermediate = product.extent[1];
  all.require_extents(weight.has_extents({2 * intermediate, x.extent[1]}),
                      "weight to have two rows per column of product and one column per column of x")
      .require_extents(gate_up.has_extents({rows, 2 * intermediate}) && product.extent[0] == rows,
                       "gate_up to be (rows, 2 intermediate) and product (rows, intermediate)")
      .require_unit_stride();
  const SwigluForward halves = swiglu();
  Operands(function, {{"x", x}, {"weight", weight}, {"gate_up", gate_up}}).require_disjoint("gate_up");
  Operands(function, {{"x", x},
                      {"weight", weight},
                      {"the first half of gate_up", halves.gate},
                      {"the second half of gate_up", halves.up},
                      {"product", product}})
      .require_disjoint("product", {"the first half of gate_up", "the second half of gate_up"});
}

SwigluForward LinearSwigluForward::swiglu() const {
  const std::int64_t intermediate = product.extent[1];
  return {columns_of(gate_up, 0, intermediate), columns_of(gate_up, intermediate, intermediate), product};
}

Operands LinearRopeForward::operands() const {
  return Operands(bias.present() ? "linear_bias_rope_forward" : "linear_rope_forward",
                  {{"x", x}, {"weight", weight}, {"bias", bias}, {"cos", cos}, {"sin", sin}, {"y", y}});
}

void LinearRopeForward::check() const {
  const Operands all = operands();
  for (const char* role : {"cos", "sin"}) all.require_dtype(role, compute_dtype(x.dtype));
  require_enumerator(all, "layout", options.layout);
  check_linear_forward(all, linear())
      .require_extents(sin.same_extents(cos), "sin to have the extents of cos")
      .require_unit_stride()
      .require_disjoint("y")
      .require_option(options.heads >= 0 && options.heads * head_dim() <= y.extent[1],
                      std::to_string(options.heads) + " heads of " + std::to_string(head_dim()) +
                          " do not fit into the " + std::to_string(y.extent[1]) + " columns of y")
      .require_option(
          options.seq_len > 0 ? y.extent[0] % options.seq_len == 0 : options.seq_len == 0 && y.extent[0] == 0,
          "seq_len must divide the rows, got " + std::to_string(options.seq_len) + " and " +
              std::to_string(y.extent[0]) + " rows");
}

RopeForward LinearRopeForward::rope() const {
  const std::int64_t row = y.stride[0], seq = std::max<std::int64_t>(1, options.seq_len);
  TensorRef heads = y;
  heads.rank = 4;
  heads.extent = {y.extent[0] / seq, seq, options.heads, head_dim()};
  heads.stride = {seq * row, row, head_dim(), 1};
  TensorRef none = heads;
  none.extent[2] = 0;
  return {{heads, none, cos, sin, {}, options.first_position, options.layout}};
}

}  // namespace kformer::Impl
