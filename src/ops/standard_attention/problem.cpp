// SPDX-License-Identifier: MIT
#include "kformer/ops/standard_attention.hpp"

#include "ops/attention/checks.hpp"

namespace kformer::Impl {

namespace {

const char* called(const StandardAttentionForward& p) {
  return p.mask.present() ? "standard_attention_masked_forward" : "standard_attention_forward";
}

void check_probabilities(const char* function, const Operands& all, const TensorRef& p, const TensorRef& q,
                         const TensorRef& k) {
  all.require_dtype("probabilities", q.dtype)
      .require_extents(p.has_extents({q.extent[0], q.extent[2], q.extent[1], k.extent[1]}),
                       "probabilities[batch,q_heads,q_len,kv_len]");
  Operands(function, {{"probabilities", p}}).require_dense("products take them as one array");
}

/// What only flash attention has must be off.
void check_flash_options(const Operands& all, const AttentionOptions& options) {
  all.require_option(options.softcap == 0, "softcap is not supported; use kformer::attention_*")
      .require_option(!options.batch_invariant,
                      "batch_invariant is not supported, because products choose the order of a sum by their "
                      "extents; use kformer::attention_*");
}

}  // namespace

Operands StandardAttentionForward::operands() const {
  return Operands(
      called(*this),
      {{"q", q}, {"k", k}, {"v", v}, {"mask", mask}, {"out", out}, {"probabilities", probabilities}});
}

void StandardAttentionForward::check() const {
  const Operands all = operands();
  check_attention_inputs(all, q, k, v, "mask", mask, options);
  check_flash_options(all, options);
  check_attention_output(all, "out", out, q, v);
  check_probabilities(called(*this), all, probabilities, q, k);
  all.require_disjoint("out").require_disjoint("probabilities");
}

Operands StandardAttentionBackward::operands() const {
  return Operands("standard_attention_backward", {{"q", q},
                                                  {"k", k},
                                                  {"v", v},
                                                  {"probabilities", probabilities},
                                                  {"dout", dout},
                                                  {"dq", dq},
                                                  {"dk", dk},
                                                  {"dv", dv}});
}

void StandardAttentionBackward::check() const {
  const Operands all = operands();
  check_attention_inputs(all, q, k, v, "mask", {}, options);
  check_flash_options(all, options);
  check_attention_output(all, "dout", dout, q, v);
  check_probabilities(function, all, probabilities, q, k);
  check_attention_gradients(all, q, k, v, dq, dk, dv);
  for (const char* role : {"dq", "dk", "dv"}) all.require_disjoint(role);
}

}  // namespace kformer::Impl
