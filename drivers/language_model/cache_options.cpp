// SPDX-License-Identifier: MIT
#include "language_model/cache_options.hpp"

namespace kformer::drivers {

namespace {

bool limits_tokens(KvCacheKind kind) {
  return kind != KvCacheKind::window && kind != KvCacheKind::heavy_hitters;
}

}  // namespace

KvCacheOptions cache_options(KvCacheKind kind, const KvCacheTable& table, const EngineTask& task) {
  // A program without a cache computes whole sequences, and needs one for the tokens of one step.
  const KvCacheKind kept = kind == KvCacheKind::none ? KvCacheKind::contiguous : kind;
  return {.kind = kept,
          .num_layers = task.config.num_hidden_layers,
          .batch = task.generator.batch,
          .capacity = limits_tokens(kept) ? task.decoder.max_positions : 0,
          .max_step_tokens = task.generator.prefill_chunk,
          .page_tokens = table.page_tokens,
          .sinks = table.sinks,
          .window = table.window,
          .budget = table.budget,
          .recent = table.recent};
}

}  // namespace kformer::drivers
