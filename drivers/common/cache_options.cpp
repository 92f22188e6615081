// SPDX-License-Identifier: MIT
#include "common/cache_options.hpp"

namespace kformer::drivers {

namespace {

KvCacheKind kind_of(KvCacheImpl kind) {
  switch (kind) {
    case KvCacheImpl::paged:
      return KvCacheKind::paged;
    case KvCacheImpl::window:
      return KvCacheKind::window;
    case KvCacheImpl::int8:
      return KvCacheKind::int8;
    case KvCacheImpl::heavy_hitters:
      return KvCacheKind::heavy_hitters;
    case KvCacheImpl::contiguous:
    case KvCacheImpl::none:
      break;
  }
  return KvCacheKind::contiguous;
}

bool limits_tokens(KvCacheKind kind) {
  return kind != KvCacheKind::window && kind != KvCacheKind::heavy_hitters;
}

}  // namespace

KvCacheOptions cache_options(KvCacheImpl kind, const KvCacheTable& table, const EngineTask& task) {
  const KvCacheKind kept = kind_of(kind);
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

Activations activations_of(ActivationStorage storage) {
  return storage == ActivationStorage::int8 ? Activations::int8 : Activations::full;
}

}  // namespace kformer::drivers
