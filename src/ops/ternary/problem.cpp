// SPDX-License-Identifier: MIT
#include "kformer/ops/ternary.hpp"

namespace kformer::Impl {

namespace {
void require_ternary(const Operands& all, QuantizedFormat format) {
  all.require_option(is_ternary(format),
                     std::string("the format must be TQ2_0 or TQ1_0, got ") + to_string(format));
}
std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
}  // namespace

Operands TernaryQuantize::operands() const {
  return Operands(function, {{"weight", weight}, {"matrix", operand(matrix)}});
}

void TernaryQuantize::check() const {
  const Operands all = operands();
  require_ternary(all, matrix.format);
  all.require_floating("weight")
      .require_extents(weight.has_extents({matrix.rows, matrix.cols}), "weight to have the extents of matrix")
      .require_extents(weight.size() == 0 || matrix.data != nullptr, "matrix to have data")
      .require_unit_stride();
  operands().with("matrix", memory_of(matrix)).require_disjoint("matrix");
}

Operands TernaryActivations::operands() const { return Operands(function, {{"x", x}, {"y", y}}); }

void TernaryActivations::check() const {
  operands()
      .require_floating("x")
      .require_dtype("y", x.dtype)
      .require_extents(y.same_extents(x), "y to have the extents of x")
      .require_unit_stride()
      .require_disjoint("y", {"x"});
}

Operands TernaryLinear::operands() const {
  return Operands(y.present() ? "ternary_linear_forward" : "ternary_linear_backward",
                  {{"x", x}, {"weight", weight}, {"y", y}, {"dy", dy}, {"dx", dx}, {"dweight", dweight}});
}

void TernaryLinear::check(const Workspace& workspace, std::size_t needed) const {
  const Operands all = operands();
  all.require_floating("x");
  for (const char* role : {"weight", "y", "dy", "dx"}) all.require_dtype(role, x.dtype);
  all.require_dtype("dweight", compute_dtype(x.dtype))
      .require_extents(weight.extent[1] == x.extent[1], "weight to have one column per column of x");
  for (const auto& [role, ref] : {Operand{"y", y}, Operand{"dy", dy}})
    all.require_extents(!ref.present() || ref.has_extents({x.extent[0], weight.extent[0]}),
                        std::string(role) + " to have the rows of x and one column per row of weight");
  all.require_extents(!dx.present() || (dx.same_extents(x) && dweight.same_extents(weight)),
                      "dx and dweight to have the extents of x and weight")
      .require_unit_stride();
  for (const char* role : {"y", "dx", "dweight"}) all.require_disjoint(role);
  require_ternary(all, options.format);
  all.require_addresses().require_workspace(workspace, needed);
}

TernaryWorkspace::TernaryWorkspace(std::int64_t rows, std::int64_t in, std::int64_t out, QuantizedFormat format,
                                   std::size_t element, std::size_t of_calls)
    : packed(whole_lines(quantized_bytes(format, out, in))),
      numbers(whole_lines(static_cast<std::size_t>(out * in) * element)),
      inputs(whole_lines(static_cast<std::size_t>(rows * in) * element)),
      rest(of_calls) {}

}  // namespace kformer::Impl
