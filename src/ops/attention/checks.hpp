// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "kformer/core/operands.hpp"
#include "kformer/core/option_checks.hpp"
#include "kformer/ops/attention_options.hpp"
#include "ops/common/held_numbers.hpp"

/// \file
/// What attention in every form requires of its operands.

namespace kformer::Impl {

/// q (batch, q_len, q_heads, head_dim), k (batch, kv_len, kv_heads, head_dim), v (batch, kv_len, kv_heads,
/// v_head_dim), and what is added to the scores, where present, (batch or 1, q_heads or 1, q_len or 1, kv_len).
inline void check_attention_inputs(const Operands& all, const TensorRef& q, const TensorRef& k,
                                   const TensorRef& v, const char* added_role, const TensorRef& added,
                                   const AttentionOptions& options) {
  require_enumerator(all, "compute", options.compute);
  all.require_floating("q");
  for (const char* role : {"k", "v", added_role}) all.require_dtype(role, q.dtype);
  const auto broadcasts = [](std::int64_t extent, std::int64_t full) { return extent == 1 || extent == full; };
  all.require_extents(k.extent[0] == q.extent[0] && k.extent[3] == q.extent[3],
                      "k to have the batch and head_dim of q")
      .require_extents(v.extent[0] == k.extent[0] && v.extent[1] == k.extent[1] && v.extent[2] == k.extent[2],
                       "v to have the batch, length and heads of k")
      .require_extents(k.extent[2] > 0 ? q.extent[2] % k.extent[2] == 0 : q.extent[2] == 0,
                       "the heads of k to divide those of q")
      .require_extents(
          !added.present() ||
              (broadcasts(added.extent[0], q.extent[0]) && broadcasts(added.extent[1], q.extent[2]) &&
               broadcasts(added.extent[2], q.extent[1]) && added.extent[3] == k.extent[1]),
          std::string(added_role) + "[batch or 1,q_heads or 1,q_len or 1,kv_len]")
      .require_unit_stride()
      .require_option(std::isfinite(options.scale),
                      "scale must be finite, got " + std::to_string(options.scale))
      .require_option(options.window >= 0,
                      "window must not be negative, got " + std::to_string(options.window));
  require_held(all, "scale", options.scale, compute_dtype(q.dtype));
}

/// `out` or its gradient, called `role`.
inline void check_attention_output(const Operands& all, const char* role, const TensorRef& out,
                                   const TensorRef& q, const TensorRef& v) {
  all.require_dtype(role, q.dtype)
      .require_extents(out.has_extents({q.extent[0], q.extent[1], q.extent[2], v.extent[3]}),
                       std::string(role) + "[batch,q_len,q_heads,v_head_dim]");
}

/// dq, dk, dv.
inline void check_attention_gradients(const Operands& all, const TensorRef& q, const TensorRef& k,
                                      const TensorRef& v, const TensorRef& dq, const TensorRef& dk,
                                      const TensorRef& dv) {
  for (const char* role : {"dq", "dk", "dv"}) all.require_dtype(role, q.dtype);
  all.require_extents(dq.same_extents(q) && dk.same_extents(k) && dv.same_extents(v),
                      "dq, dk and dv to have the extents of q, k and v");
}

}  // namespace kformer::Impl
