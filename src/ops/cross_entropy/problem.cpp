// SPDX-License-Identifier: MIT
#include "ops/cross_entropy/checks.hpp"

#include <cmath>

#include "ops/common/held_numbers.hpp"

namespace kformer::Impl {

void require_options(const Operands& all, const CrossEntropyOptions& options, DType computed) {
  all.require_option(
         options.label_smoothing >= 0 && options.label_smoothing < 1,
         "label_smoothing must be at least 0 and below 1, got " + std::to_string(options.label_smoothing))
      .require_option(options.z_loss >= 0, "z_loss must not be negative, got " + std::to_string(options.z_loss))
      .require_option(options.softcap >= 0 && std::isfinite(options.softcap),
                      "softcap must be finite and not negative, got " + std::to_string(options.softcap));
  require_held(all, "z_loss", options.z_loss, computed);
  require_held(all, "softcap", options.softcap, computed);
}

Operands CrossEntropyForward::operands() const {
  return Operands(function, {{"logits", logits}, {"targets", targets}, {"loss", loss}, {"lse", lse}});
}

void CrossEntropyForward::check() const {
  const Operands all = operands();
  all.require_floating("logits");
  for (const char* role : {"loss", "lse"}) all.require_dtype(role, compute_dtype(logits.dtype));
  const std::int64_t rows = logits.extent[0];
  all.require_dtype("targets", DType::i32)
      .require_extents(targets.has_extents({rows}) && loss.has_extents({rows}) && lse.has_extents({rows}),
                       "targets, loss and lse to have one element per row of logits")
      .require_unit_stride()
      .require_disjoint("loss")
      .require_disjoint("lse");
  require_options(all, options, compute_dtype(logits.dtype));
}

Operands CrossEntropyBackward::operands() const {
  return Operands(
      function,
      {{"logits", logits}, {"targets", targets}, {"lse", lse}, {"dloss", dloss}, {"dlogits", dlogits}});
}

void CrossEntropyBackward::check() const {
  const Operands all = operands();
  all.require_floating("logits");
  for (const char* role : {"lse", "dloss"}) all.require_dtype(role, compute_dtype(logits.dtype));
  const std::int64_t rows = logits.extent[0];
  all.require_dtype("targets", DType::i32)
      .require_dtype("dlogits", logits.dtype)
      .require_extents(targets.has_extents({rows}) && lse.has_extents({rows}) && dloss.has_extents({rows}),
                       "targets, lse and dloss to have one element per row of logits")
      .require_extents(dlogits.same_extents(logits), "dlogits to have the extents of logits")
      .require_unit_stride()
      .require_disjoint("dlogits", {"logits"});
  require_options(all, options, compute_dtype(logits.dtype));
}

}  // namespace kformer::Impl
