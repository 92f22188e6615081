// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/kv_cache.hpp"
#include "model/kv_cache/kv_cache_base.hpp"

/// \file
/// Caches that keep keys and values as they are, in slots.

namespace kformer::Impl {

/// The slots of all sequences and layers, and how rows get there.
template <class Exec, class T>
class PooledKvCache : public KvCache<Exec, T> {
 protected:
  using Base = KvCache<Exec, T>;
  using Base::m_config, Base::m_options, Base::m_slots, Base::m_lengths, Base::m_new_tokens;
  using typename Base::Batch, typename Base::ConstBatch, typename Base::ConstTokenHeads;

  PooledKvCache(const LlamaConfig& config, const KvCacheOptions& options, std::int64_t slots, Ledger& ledger)
      : Base(config, options, ledger) {
    const std::int64_t arrays = 2 * options.num_layers, heads = config.num_key_value_heads;
    m_block = ledger.allocate<typename Exec::memory_space>(
        MemoryClass::kv_cache, "KvCache::slots", array_bytes<T>({arrays, slots, heads, config.head_dim}));
    m_pool = {m_block.template at<T>(0), arrays, slots, heads, config.head_dim};
  }

  void append(const Exec& exec, std::int64_t layer, const ConstTokenHeads& k,
              const ConstTokenHeads& v) override {
    kv_append(exec, k, v, this->m_row_slots.view(0, static_cast<std::int64_t>(k.extent(0))),
              m_pool.rows(2 * layer), m_pool.rows(2 * layer + 1));
  }

  ConstBatch keys(std::int64_t layer, std::int64_t slot, std::int64_t count) const {
    return m_pool.batch(2 * layer, slot, count);
  }
  ConstBatch values(std::int64_t layer, std::int64_t slot, std::int64_t count) const {
    return m_pool.batch(2 * layer + 1, slot, count);
  }

  SlotArrays<Exec, T> m_pool;

 private:
  MemoryBlock<typename Exec::memory_space> m_block;
};

}  // namespace kformer::Impl
