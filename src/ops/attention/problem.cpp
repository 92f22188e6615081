// SPDX-License-Identifier: MIT
#include "kformer/ops/attention.hpp"

#include <cmath>

#include "ops/attention/checks.hpp"

namespace kformer::Impl {

namespace {

/// Of both directions; those of the backward pass alone are absent in the forward pass.
template <class P>
Operands operands_of(const P& p, const TensorRef& dout = {}, const TensorRef& dq = {}, const TensorRef& dk = {},
                     const TensorRef& dv = {}, const AttentionExtraGradientRefs& gradients = {}) {
  const AttentionExtraRefs& x = p.extras;
  return Operands(P::function, {{"q", p.q},
                                {"k", p.k},
                                {"v", p.v},
                                {"bias", x.bias},
                                {"alibi_slopes", x.alibi_slopes},
                                {"sinks", x.sinks},
                                {"cu_seqlens_q", x.cu_seqlens_q},
                                {"cu_seqlens_kv", x.cu_seqlens_kv},
                                {"block_mask", x.block_mask},
                                {"out", p.out},
                                {"lse", p.lse},
                                {"dout", dout},
                                {"dq", dq},
                                {"dk", dk},
                                {"dv", dv},
                                {"dbias", gradients.dbias},
                                {"dsinks", gradients.dsinks}});
}

void check_lse(const Operands& all, const TensorRef& lse, const TensorRef& q) {
  all.require_dtype("lse", compute_dtype(q.dtype))
      .require_extents(lse.has_extents({q.extent[0], q.extent[2], q.extent[1]}), "lse[batch,q_heads,q_len]");
}

void check_block_mask(const Operands& all, const TensorRef& q, const TensorRef& k,
                      const AttentionExtraRefs& x) {
  all.require_option(x.block_q > 0 && x.block_kv > 0,
                     "the blocks of a block mask must have positive sizes, got " + std::to_string(x.block_q) +
                         " queries by " + std::to_string(x.block_kv) + " keys");
  const auto blocks = [](std::int64_t length, std::int64_t size) { return (length + size - 1) / size; };
  const auto& e = x.block_mask.extent;
  all.require_dtype("block_mask", DType::i32)
      .require_extents((e[0] == 1 || e[0] == q.extent[0]) && (e[1] == 1 || e[1] == q.extent[2]) &&
                           e[2] == blocks(q.extent[1], x.block_q) && e[3] == blocks(k.extent[1], x.block_kv),
                       "block_mask[batch or 1,q_heads or 1,⌈q_len/" + std::to_string(x.block_q) + "⌉,⌈kv_len/" +
                           std::to_string(x.block_kv) + "⌉]");
}

void check_extras(const Operands& all, const TensorRef& q, const TensorRef& k, const AttentionOptions& options,
                  const AttentionExtraRefs& x) {
  all.require_option(options.softcap >= 0 && std::isfinite(options.softcap),
                     "softcap must be finite and not negative, got " + std::to_string(options.softcap))
      .require_dtype("alibi_slopes", compute_dtype(q.dtype))
      .require_dtype("sinks", q.dtype)
      .require_dtype("cu_seqlens_q", DType::i32)
      .require_dtype("cu_seqlens_kv", DType::i32)
      .require_extents(!x.alibi_slopes.present() || x.alibi_slopes.has_extents({q.extent[2]}),
                       "alibi_slopes[q_heads]")
      .require_extents(!x.sinks.present() || x.sinks.has_extents({q.extent[2]}), "sinks[q_heads]");
  require_held(all, "softcap", options.softcap, compute_dtype(q.dtype));
  if (x.block_mask.present()) check_block_mask(all, q, k, x);
  if (!x.cu_seqlens_q.present()) return;
  all.require_extents(q.extent[0] == 1, "a batch of 1, because the sequences are packed")
      .require_extents(x.cu_seqlens_q.extent[0] >= 1 && x.cu_seqlens_kv.same_extents(x.cu_seqlens_q),
                       "cu_seqlens_q[sequences + 1] and cu_seqlens_kv[sequences + 1]")
      .require_option(!x.bias.present(), "a bias is not supported for packed sequences; pad them into a batch")
      .require_option(!x.block_mask.present(),
                      "a block mask is not supported for packed sequences; pad them into a batch");
}

TensorRef packed(DType dtype, std::initializer_list<std::int64_t> extents) {
  TensorRef ref;
  ref.dtype = dtype;
  ref.rank = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), ref.extent.begin());
  std::int64_t stride = 1;
  for (int r = ref.rank - 1; r >= 0; --r) {
    ref.stride[r] = stride;
    stride *= ref.extent[r];
  }
  return ref;
}

}  // namespace

void check_sequence_starts(const Operands& all, const char* role, const TensorRef& ref, std::int64_t total) {
  if (!ref.present()) return;
  const auto starts = ref.as<const std::int32_t, 1>();
  const std::int64_t sequences = ref.extent[0] - 1;
  bool good = starts(0) == 0 && starts(sequences) == total;
  for (std::int64_t n = 0; n < sequences && good; ++n) good = starts(n) <= starts(n + 1);
  all.require_extents(
      good, std::string(role) + " to start at 0, never to decrease, and to end at " + std::to_string(total));
}

void check_sequence_lengths(const Operands& all, const AttentionExtraRefs& extras, std::int64_t q_len,
                            std::int64_t kv_len) {
  check_sequence_starts(all, "cu_seqlens_q", extras.cu_seqlens_q, q_len);
  check_sequence_starts(all, "cu_seqlens_kv", extras.cu_seqlens_kv, kv_len);
}

Operands AttentionForward::operands() const { return operands_of(*this); }

void AttentionForward::check() const {
  const Operands all = operands();
  check_attention_inputs(all, q, k, v, "bias", extras.bias, options);
  check_extras(all, q, k, options, extras);
  check_attention_output(all, "out", out, q, v);
  check_lse(all, lse, q);
  all.require_disjoint("out").require_disjoint("lse");
}

Operands AttentionBackward::operands() const { return operands_of(*this, dout, dq, dk, dv, gradients); }

void AttentionBackward::check() const {
  const Operands all = operands();
  check_attention_inputs(all, q, k, v, "bias", extras.bias, options);
  check_extras(all, q, k, options, extras);
  check_attention_output(all, "out", out, q, v);
  check_attention_output(all, "dout", dout, q, v);
  check_lse(all, lse, q);
  check_attention_gradients(all, q, k, v, dq, dk, dv);
  const auto& [dbias, dsinks] = gradients;
  all.require_dtype("dbias", q.dtype)
      .require_dtype("dsinks", compute_dtype(q.dtype))
      .require_extents(!dbias.present() || dbias.same_extents(extras.bias), "dbias to have the extents of bias")
      .require_extents(!dsinks.present() || dsinks.same_extents(extras.sinks),
                       "dsinks to have the extents of sinks");
  for (const char* role : {"dq", "dk", "dv", "dbias", "dsinks"}) all.require_disjoint(role);
}

AttentionForward planned_attention_forward(const AttentionShape& s, const AttentionOptions& options,
                                           const AttentionExtraRefs& extras) {
  require_not_negative("AttentionShape", {{"batch", s.batch},
                                          {"q_len", s.q_len},
                                          {"kv_len", s.kv_len},
                                          {"q_heads", s.q_heads},
                                          {"kv_heads", s.kv_heads},
                                          {"head_dim", s.head_dim},
                                          {"v_head_dim", s.v_head_dim}});
  return {packed(s.dtype, {s.batch, s.q_len, s.q_heads, s.head_dim}),
          packed(s.dtype, {s.batch, s.kv_len, s.kv_heads, s.head_dim}),
          packed(s.dtype, {s.batch, s.kv_len, s.kv_heads, s.v_head_dim}),
          packed(s.dtype, {s.batch, s.q_len, s.q_heads, s.v_head_dim}),
          packed(compute_dtype(s.dtype), {s.batch, s.q_heads, s.q_len}),
          options,
          extras};
}

AttentionBackward planned_attention_backward(const AttentionShape& shape, const AttentionOptions& options,
                                             const AttentionExtraRefs& extras,
                                             const AttentionExtraGradientRefs& gradients) {
  const auto f = planned_attention_forward(shape, options, extras);
  return {f.q, f.k, f.v, f.out, f.lse, f.out, f.q, f.k, f.v, options, extras, gradients};
}

}  // namespace kformer::Impl
