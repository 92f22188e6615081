// SPDX-License-Identifier: MIT
#include "kformer/ops/rope.hpp"

namespace kformer::Impl {

Operands RopeTables::operands() const { return Operands("rope_tables", {{"cos", cos}, {"sin", sin}}); }

void RopeTables::check() const {
  const RopeScaling& s = options.scaling;
  const bool unscaled = s.rope_type == RopeType::none;
  const auto text = [](double value) { return std::to_string(value); };
  operands()
      .require_floating("cos")
      .require_dtype("cos", compute_dtype(cos.dtype))
      .require_dtype("sin", cos.dtype)
      .require_extents(sin.same_extents(cos), "sin to have the extents of cos")
      .require_unit_stride()
      .require_disjoint("cos")
      .require_disjoint("sin")
      .require_option(options.theta > 0, "theta must be positive, got " + text(options.theta))
      .require_option(unscaled || s.factor > 0, "scaling.factor must be positive, got " + text(s.factor))
      .require_option(unscaled || (s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor),
                      "scaling needs 0 < low_freq_factor < high_freq_factor, got " + text(s.low_freq_factor) +
                          " and " + text(s.high_freq_factor))
      .require_option(unscaled || s.original_max_position_embeddings > 0,
                      "scaling.original_max_position_embeddings must be positive, got " +
                          std::to_string(s.original_max_position_embeddings));
}

namespace {

void check_rotation(const Operands& all, const RopeRotation& p, const std::string& q, const std::string& k) {
  const std::int64_t batch = p.q.extent[0], seq = p.q.extent[1], head_dim = p.q.extent[3];
  all.require_floating(q).require_dtype(k, p.q.dtype);
  for (const char* role : {"cos", "sin"}) all.require_dtype(role, compute_dtype(p.q.dtype));
  all.require_dtype("positions", DType::i32)
      .require_extents(p.k.has_extents({batch, seq, p.k.extent[2], head_dim}),
                       k + " to have the extents of " + q + " except for the heads")
      .require_extents(head_dim % 2 == 0, "an even head_dim, because components are rotated in pairs")
      .require_extents(p.cos.extent[1] == head_dim / 2 && p.sin.same_extents(p.cos),
                       "cos and sin to have one row per position and head_dim / 2 columns")
      .require_extents(
          !p.positions.present() || p.positions.has_extents({batch, seq}) || p.positions.has_extents({1, seq}),
          "positions to have the batch (or 1) and seq of " + q)
      .require_unit_stride()
      .require_disjoint(q)
      .require_disjoint(k);
}

}  // namespace

Operands RopeForward::operands() const {
  return Operands(function, {{"q", q}, {"k", k}, {"cos", cos}, {"sin", sin}, {"positions", positions}});
}

void RopeForward::check() const { check_rotation(operands(), *this, "q", "k"); }

Operands RopeBackward::operands() const {
  return Operands(function, {{"dq", q}, {"dk", k}, {"cos", cos}, {"sin", sin}, {"positions", positions}});
}

void RopeBackward::check() const { check_rotation(operands(), *this, "dq", "dk"); }

}  // namespace kformer::Impl
