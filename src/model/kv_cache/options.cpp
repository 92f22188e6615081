// SPDX-License-Identifier: MIT
#include "kformer/model/kv_cache.hpp"

#include <algorithm>
#include <limits>

#include "kformer/core/option_checks.hpp"
#include "kformer/ops/impl/launch.hpp"

namespace kformer {

namespace Impl {

namespace {

void require(bool condition, const KvCacheOptions& o, const std::string& sentence) {
  if (!condition)
    throw NotSupported(std::string("kformer::KvCache::create: ") + sentence + " (" + name_of(o.kind).data() +
                       " cache)");
}

}  // namespace

std::int64_t kv_window_slack(const KvCacheOptions& o) { return std::max<std::int64_t>(16, o.window / 8); }

std::int64_t kv_cache_slots(const KvCacheOptions& o) {
  std::int64_t slots = o.capacity;
  if (o.kind == KvCacheKind::window) slots = o.sinks + o.window - 1 + kv_window_slack(o) + o.max_step_tokens;
  if (o.kind == KvCacheKind::heavy_hitters) slots = o.budget + o.max_step_tokens;
  return o.capacity > 0 ? std::min(slots, o.capacity) : slots;
}

KvCacheOptions checked_kv_cache_options(const LlamaConfig& config, KvCacheOptions o) {
  require_enumerator("KvCache::create", "kind", o.kind);
  config.check();
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  require(o.kind != KvCacheKind::none, o, "`none` is not a cache; choose another kind");
  const auto in_range = [&](const char* name, std::int64_t value, std::int64_t least) {
    require(value >= least && value <= most, o,
            std::string(name) + " must lie between " + std::to_string(least) + " and " + std::to_string(most) +
                ", got " + std::to_string(value));
  };
  const bool bounded = o.kind == KvCacheKind::window || o.kind == KvCacheKind::heavy_hitters;
  in_range("num_layers", o.num_layers, 1);
  in_range("batch", o.batch, 1);
  in_range("capacity", o.capacity, bounded ? 0 : 1);
  in_range("max_step_tokens", o.max_step_tokens, 1);
  if (o.capacity > 0) o.max_step_tokens = std::min(o.max_step_tokens, o.capacity);
  if (o.kind == KvCacheKind::window) {
    in_range("window", o.window, 1);
    in_range("sinks", o.sinks, 0);
  }
  if (o.kind == KvCacheKind::heavy_hitters) {
    in_range("budget", o.budget, 1);
    if (o.recent == 0) o.recent = (o.budget + 1) / 2;
    in_range("recent", o.recent, 1);
    require(o.recent <= o.budget, o,
            "recent " + std::to_string(o.recent) + " must not exceed budget " + std::to_string(o.budget));
  }
  std::int64_t slots = o.batch * kv_cache_slots(o);
  if (o.kind == KvCacheKind::paged) {
    in_range("page_tokens", o.page_tokens, 1);
    in_range("pages", o.pages, 0);
    if (o.pages == 0) o.pages = o.batch * ceil_div(o.capacity, o.page_tokens);
    slots = o.pages * o.page_tokens;
  }
  require(slots <= most, o,
          std::to_string(slots) + " slots of all sequences are more than the " + std::to_string(most) +
              " that can be numbered; use several caches");
  return o;
}

}  // namespace Impl
}  // namespace kformer
