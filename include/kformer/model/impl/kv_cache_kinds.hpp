// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/impl/contiguous_kv_cache.hpp"
#include "kformer/model/impl/heavy_hitter_kv_cache.hpp"
#include "kformer/model/impl/int8_kv_cache.hpp"
#include "kformer/model/impl/paged_kv_cache.hpp"
#include "kformer/model/impl/window_kv_cache.hpp"

/// \file
/// The choice among the kinds of caches.

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
