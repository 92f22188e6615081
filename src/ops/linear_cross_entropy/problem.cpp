// SPDX-License-Identifier: MIT
#include "kformer/ops/impl/launch.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "ops/cross_entropy/checks.hpp"

namespace kformer::Impl {

namespace {

/// Rows of a chunk where the caller does not say: as few chunks as `most_rows` allow, of even size.
std::int64_t chosen_rows(std::int64_t all_rows, std::int64_t most_rows) {
  return ceil_div(all_rows, std::max<std::int64_t>(1, ceil_div(all_rows, most_rows)));
}

}  // namespace

LogitChunks::LogitChunks(DType storage, std::int64_t all_rows, std::int64_t vocabulary,
                         const LinearCrossEntropyOptions& options, std::int64_t most_rows) {
  Operands(LinearCrossEntropy::function, {})
      .require_option(options.chunk_rows >= 0,
                      "chunk_rows must not be negative, got " + std::to_string(options.chunk_rows));
  rows = options.chunk_rows > 0 ? std::min(options.chunk_rows, all_rows) : chosen_rows(all_rows, most_rows);
  const std::size_t lse_size = size_of(compute_dtype(storage));
  const auto per_chunk = static_cast<std::int64_t>(16 / size_of(storage));
  stride = ceil_div(vocabulary, per_chunk) * per_chunk;
  const auto logits = static_cast<std::size_t>(rows * stride) * size_of(storage);
  lse_offset = ceil_div(logits, lse_size) * lse_size;
  constexpr std::size_t line = Workspace::alignment;
  bytes = ceil_div(lse_offset + static_cast<std::size_t>(rows) * lse_size, line) * line;
}

Workspace LogitChunks::product_workspace(const Workspace& workspace) const {
  Workspace rest;
  rest.data = static_cast<std::byte*>(workspace.data) + bytes;
  rest.bytes = workspace.bytes - bytes;
  return rest;
}

Operands LinearCrossEntropy::operands() const {
  return Operands(function, {{"x", x},
                             {"weight", weight},
                             {"targets", targets},
                             {"loss", loss},
                             {"dloss", dloss},
                             {"dx", dx},
                             {"dweight", dweight}});
}

void LinearCrossEntropy::check(const Workspace& workspace, std::int64_t most_rows) const {
  const Operands all = operands();
  all.require_floating("x");
  for (const char* role : {"weight", "dx"}) all.require_dtype(role, x.dtype);
  for (const char* role : {"loss", "dloss", "dweight"}) all.require_dtype(role, compute_dtype(x.dtype));
  const std::int64_t rows = x.extent[0], vocabulary = weight.extent[0];
  const bool with_gradients = dx.present();
  all.require_dtype("targets", DType::i32)
      .require_extents(weight.extent[1] == x.extent[1], "weight to have one column per column of x")
      .require_extents(targets.has_extents({rows}) && loss.has_extents({rows}) &&
                           (!with_gradients || dloss.has_extents({rows})),
                       std::string("targets") + (with_gradients ? ", loss and dloss" : " and loss") +
                           " to have one element per row of x")
      .require_extents(
          !with_gradients || (dx.same_extents(x) && (dweight.same_extents(weight) || dweight.extent[0] == 0)),
          "dx and dweight to have the extents of x and weight")
      .require_unit_stride()
      .require_disjoint("loss")
      .require_disjoint("dx", {"x"})
      .require_disjoint("dweight");
  require_options(all, options.cross_entropy, compute_dtype(x.dtype));
  all.require_addresses().require_workspace(workspace,
                                            LogitChunks(x.dtype, rows, vocabulary, options, most_rows).bytes);
}

}  // namespace kformer::Impl
