// SPDX-License-Identifier: MIT
#include "kformer/ops/rms_norm.hpp"

#include "ops/common/held_numbers.hpp"

namespace kformer::Impl {

namespace {

/// Whether rstd has one element per row of x, or per head of it.
bool one_per_row(const TensorRef& rstd, const TensorRef& x) {
  return x.rank == 3 ? rstd.has_extents({x.extent[0], x.extent[1]}) : rstd.has_extents({x.extent[0]});
}

/// Kernels number the heads of all tokens.
void require_dense_statistics(const TensorRef& rstd, const Operands& all, const std::string& role = "rstd") {
  all.require_extents(rstd.rank < 2 || rstd.extent[0] < 2 || rstd.stride[0] == rstd.extent[1],
                      role + " to be dense, the heads of each token behind those of the one before");
}

/// The queries or the keys of QkNormForward; `dtype` is the storage type of both.
void check_heads(const RmsNormForward& p, DType dtype, const std::string& x, const Operands& all) {
  const std::string weight = x + "_weight", y = x + "_out", rstd = x + "_rstd";
  for (const std::string& role : {x, weight, y}) all.require_dtype(role, dtype);
  all.require_dtype(rstd, compute_dtype(dtype))
      .require_extents(p.y.same_extents(p.x), y + " to have the extents of " + x)
      .require_extents(p.weight.has_extents({p.x.extent[2]}), weight + " to have head_dim elements")
      .require_extents(one_per_row(p.rstd, p.x), rstd + " to have one element per head of " + x)
      .require_disjoint(y, {x})
      .require_disjoint(rstd);
  require_dense_statistics(p.rstd, all, rstd);
}

}  // namespace

Operands RmsNormForward::operands() const {
  return Operands(
      residual.present() ? "rms_norm_residual_forward" : "rms_norm_forward",
      {{"x", x}, {"residual", residual}, {"weight", weight}, {"sum", sum}, {"y", y}, {"rstd", rstd}});
}

void RmsNormForward::check() const {
  const Operands all = operands();
  all.require_floating("x");
  for (const char* role : {"residual", "weight", "sum", "y"}) all.require_dtype(role, x.dtype);
  all.require_dtype("rstd", compute_dtype(x.dtype))
      .require_extents(y.same_extents(x), "y to have the extents of x")
      .require_extents(!residual.present() || (residual.same_extents(x) && sum.same_extents(x)),
                       "residual and sum to have the extents of x")
      .require_extents(weight.has_extents({NormRows(x).hidden}), "weight to have one element per column of x")
      .require_extents(one_per_row(rstd, x), "rstd to have one element per row of x")
      .require_unit_stride()
      .require_option(eps >= 0, "eps must not be negative, got " + std::to_string(eps))
      .require_disjoint("sum", {"x", "residual"})
      .require_disjoint("rstd");
  require_held(all, "eps", eps, compute_dtype(x.dtype));
  if (residual.present())
    all.require_disjoint("y");
  else
    all.require_disjoint("y", {"x"});
  require_dense_statistics(rstd, all);
}

Operands QkNormForward::operands() const {
  return Operands(function, {{"q", q.x},
                             {"k", k.x},
                             {"q_weight", q.weight},
                             {"k_weight", k.weight},
                             {"q_out", q.y},
                             {"k_out", k.y},
                             {"q_rstd", q.rstd},
                             {"k_rstd", k.rstd}});
}

void QkNormForward::check() const {
  const Operands all = operands();
  all.require_floating("q")
      .require_extents(k.x.has_extents({q.x.extent[0], k.x.extent[1], q.x.extent[2]}),
                       "k to have the extents of q except for the heads")
      .require_unit_stride()
      .require_option(q.eps >= 0, "eps must not be negative, got " + std::to_string(q.eps));
  require_held(all, "eps", q.eps, compute_dtype(q.x.dtype));
  check_heads(q, q.x.dtype, "q", all);
  check_heads(k, q.x.dtype, "k", all);
}

Operands RmsNormBackward::operands() const {
  return Operands(dsum.present() ? "rms_norm_residual_backward" : "rms_norm_backward",
                  {{dsum.present() ? "sum" : "x", x},
                   {"weight", weight},
                   {"rstd", rstd},
                   {"dy", dy},
                   {"dsum", dsum},
                   {"dx", dx},
                   {"dweight", dweight}});
}

void RmsNormBackward::check() const {
  const Operands all = operands();
  all.require_floating(dsum.present() ? "sum" : "x");
  for (const char* role : {"weight", "dy", "dsum", "dx"}) all.require_dtype(role, x.dtype);
  for (const char* role : {"rstd", "dweight"}) all.require_dtype(role, compute_dtype(x.dtype));
  const std::string rows_of = dsum.present() ? "sum" : "x";
  all.require_extents(dy.same_extents(x) && dx.same_extents(x), "dy and dx to have the extents of " + rows_of)
      .require_extents(!dsum.present() || dsum.same_extents(x), "dsum to have the extents of sum")
      .require_extents(weight.has_extents({NormRows(x).hidden}) &&
                           (dweight.has_extents({NormRows(x).hidden}) || dweight.has_extents({0})),
                       "weight and dweight to have one element per column of " + rows_of)
      .require_extents(one_per_row(rstd, x), "rstd to have one element per row of " + rows_of)
      .require_unit_stride()
      .require_disjoint("dx", {"dy", "dsum"})
      .require_disjoint("dweight");
  require_dense_statistics(rstd, all);
}

}  // namespace kformer::Impl
