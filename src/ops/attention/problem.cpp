// SPDX-License-Identifier: MIT
#include "kformer/ops/attention.hpp"

#include "ops/attention/checks.hpp"

namespace kformer::Impl {

namespace {

void check_lse(const Operands& all, const TensorRef& lse, const TensorRef& q) {
  all.require_dtype("lse", compute_dtype(q.dtype))
      .require_extents(lse.has_extents({q.extent[0], q.extent[2], q.extent[1]}), "lse[batch,q_heads,q_len]");
}

}  // namespace

Operands AttentionForward::operands() const {
  return Operands(mask.present() ? "attention_masked_forward" : "attention_forward",
                  {{"q", q}, {"k", k}, {"v", v}, {"mask", mask}, {"out", out}, {"lse", lse}});
}

void AttentionForward::check() const {
  const Operands all = operands();
  check_attention_inputs(all, q, k, v, mask, options);
  check_attention_output(all, "out", out, q, v);
  check_lse(all, lse, q);
}

Operands AttentionBackward::operands() const {
  return Operands(mask.present() ? "attention_masked_backward" : "attention_backward", {{"q", q},
                                                                                        {"k", k},
                                                                                        {"v", v},
                                                                                        {"mask", mask},
                                                                                        {"out", out},
                                                                                        {"lse", lse},
                                                                                        {"dout", dout},
                                                                                        {"dq", dq},
                                                                                        {"dk", dk},
                                                                                        {"dv", dv}});
}

void AttentionBackward::check() const {
  const Operands all = operands();
  check_attention_inputs(all, q, k, v, mask, options);
  check_attention_output(all, "out", out, q, v);
  check_attention_output(all, "dout", dout, q, v);
  check_lse(all, lse, q);
  check_attention_gradients(all, q, k, v, dq, dk, dv);
}

}  // namespace kformer::Impl
