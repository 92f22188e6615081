// SPDX-License-Identifier: MIT
#include "kformer/ops/standard_attention.hpp"

namespace kformer::Impl {

namespace {

// What forward and backward require of q, k, v and the probabilities. Without queries of rank 4 nothing can be
// said.
void check_inputs(const Operands& all, const TensorRef& q, const TensorRef& k, const TensorRef& v,
                  const TensorRef& p) {
  for (const char* role : {"k", "v", "probabilities"}) all.require_dtype(role, q.dtype);
  all.require_extents(k.extent[0] == q.extent[0] && k.extent[3] == q.extent[3],
                      "k to have the batch and head_dim of q")
      .require_extents(v.extent[0] == k.extent[0] && v.extent[1] == k.extent[1] && v.extent[2] == k.extent[2],
                       "v to have the batch, length and heads of k")
      .require_extents(k.extent[2] > 0 ? q.extent[2] % k.extent[2] == 0 : q.extent[2] == 0,
                       "the heads of k to divide those of q")
      .require_extents(p.has_extents({q.extent[0], q.extent[2], q.extent[1], k.extent[1]}),
                       "probabilities[batch,q_heads,q_len,kv_len]");
  bool dense = true;
  for (int r = 0; r < 3; ++r)
    dense = dense && (p.size() == 0 || p.stride[r] == p.stride[r + 1] * p.extent[r + 1]);
  all.require_extents(dense, "probabilities to be dense (Kokkos::LayoutRight)").require_unit_stride();
}

}  // namespace

Operands StandardAttentionForward::operands() const {
  return Operands(
      mask.present() ? "standard_attention_masked_forward" : "standard_attention_forward",
      {{"q", q}, {"k", k}, {"v", v}, {"mask", mask}, {"out", out}, {"probabilities", probabilities}});
}

void StandardAttentionForward::check() const {
  const Operands all = operands();
  for (const char* role : {"mask", "out"}) all.require_dtype(role, q.dtype);
  const auto broadcasts = [](std::int64_t extent, std::int64_t full) { return extent == 1 || extent == full; };
  all.require_extents(out.has_extents({q.extent[0], q.extent[1], q.extent[2], v.extent[3]}),
                      "out[batch,q_len,q_heads,v_head_dim]")
      .require_extents(
          !mask.present() ||
              (broadcasts(mask.extent[0], q.extent[0]) && broadcasts(mask.extent[1], q.extent[2]) &&
               broadcasts(mask.extent[2], q.extent[1]) && mask.extent[3] == k.extent[1]),
          "mask[batch or 1,q_heads or 1,q_len or 1,kv_len]");
  check_inputs(all, q, k, v, probabilities);
  all.require_option(options.window >= 0, "window must not be negative, got " + std::to_string(options.window));
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
  for (const char* role : {"dout", "dq", "dk", "dv"}) all.require_dtype(role, q.dtype);
  all.require_extents(dout.has_extents({q.extent[0], q.extent[1], q.extent[2], v.extent[3]}),
                      "dout[batch,q_len,q_heads,v_head_dim]")
      .require_extents(dq.same_extents(q) && dk.same_extents(k) && dv.same_extents(v),
                       "dq, dk and dv to have the extents of q, k and v");
  check_inputs(all, q, k, v, probabilities);
}

}  // namespace kformer::Impl
