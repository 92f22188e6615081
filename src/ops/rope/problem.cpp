// SPDX-License-Identifier: MIT
#include "kformer/ops/rope.hpp"

#include "kformer/core/option_checks.hpp"
#include "ops/common/held_numbers.hpp"

namespace kformer::Impl {

void check_rope_options(const Operands& all, const RopeOptions& options) {
  const RopeScaling& s = options.scaling;
  const auto text = [](double value) { return std::to_string(value); };
  require_enumerator(all, "layout", options.layout);
  require_enumerator(all, "scaling.rope_type", s.rope_type);
  all.require_option(options.theta > 0, "theta must be positive, got " + text(options.theta));
  require_held(all, "theta", options.theta, DType::f64);  // the angles are computed in double
  if (s.rope_type == RopeType::none) return;
  all.require_option(s.factor > 0, "scaling.factor must be positive, got " + text(s.factor))
      .require_option(s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor,
                      "scaling needs 0 < low_freq_factor < high_freq_factor, got " + text(s.low_freq_factor) +
                          " and " + text(s.high_freq_factor))
      .require_option(s.original_max_position_embeddings > 0,
                      "scaling.original_max_position_embeddings must be positive, got " +
                          std::to_string(s.original_max_position_embeddings));
  require_held(all, "scaling.factor", s.factor, DType::f64);
  require_held(all, "scaling.high_freq_factor", s.high_freq_factor, DType::f64);
}

Operands RopeTables::operands() const { return Operands("rope_tables", {{"cos", cos}, {"sin", sin}}); }

void RopeTables::check() const {
  const Operands all = operands();
  all.require_floating("cos")
      .require_dtype("cos", compute_dtype(cos.dtype))
      .require_dtype("sin", cos.dtype)
      .require_extents(sin.same_extents(cos), "sin to have the extents of cos")
      .require_unit_stride()
      .require_disjoint("cos")
      .require_disjoint("sin");
  check_rope_options(all, options);
}

namespace {

void check_rotation(const Operands& all, const RopeRotation& p, const std::string& q, const std::string& k) {
  const std::int64_t batch = p.q.extent[0], seq = p.q.extent[1], head_dim = p.q.extent[3];
  require_enumerator(all, "layout", p.layout);
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
