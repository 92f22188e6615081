// SPDX-License-Identifier: MIT
#pragma once

#include "model/kv_cache/contiguous_kv_cache.hpp"
#include "model/kv_cache/heavy_hitter_kv_cache.hpp"
#include "model/kv_cache/int8_kv_cache.hpp"
#include "model/kv_cache/paged_kv_cache.hpp"
#include "model/kv_cache/window_kv_cache.hpp"

/// \file
/// The choice among the kinds of caches: all of KvCache's definitions.

namespace kformer {

template <class Exec, Scalar T>
std::unique_ptr<KvCache<Exec, T>> KvCache<Exec, T>::create(const LlamaConfig& config,
                                                           const KvCacheOptions& given, Ledger& ledger) {
  const KvCacheOptions options = Impl::checked_kv_cache_options(config, given);
  switch (options.kind) {
    case KvCacheKind::contiguous:
      return std::make_unique<Impl::ContiguousKvCache<Exec, T>>(config, options, ledger);
    case KvCacheKind::paged:
      return std::make_unique<Impl::PagedKvCache<Exec, T>>(config, options, ledger);
    case KvCacheKind::window:
      return std::make_unique<Impl::WindowKvCache<Exec, T>>(config, options, ledger);
    case KvCacheKind::int8:
      return std::make_unique<Impl::Int8KvCache<Exec, T>>(config, options, ledger);
    case KvCacheKind::heavy_hitters:
      return std::make_unique<Impl::HeavyHitterKvCache<Exec, T>>(config, options, ledger);
    case KvCacheKind::none:
      break;
  }
  throw NotSupported("kformer::KvCache::create: there is no such kind");
}

}  // namespace kformer
