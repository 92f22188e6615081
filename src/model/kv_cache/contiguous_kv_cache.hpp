// SPDX-License-Identifier: MIT
#pragma once

#include "model/kv_cache/pooled_kv_cache.hpp"

/// \file
/// The cache that keeps everything, each sequence in one piece.

namespace kformer::Impl {

/// Sequence `s` owns slots [s · capacity, (s + 1) · capacity).
template <class Exec, class T>
class ContiguousKvCache final : public PooledKvCache<Exec, T> {
  using Base = PooledKvCache<Exec, T>;
  using Base::m_lengths, Base::m_pool, Base::m_slots;
  using typename Base::Batch, typename Base::ConstBatch;

 public:
  ContiguousKvCache(const LlamaConfig& config, const KvCacheOptions& options, Ledger& ledger)
      : Base(config, options, options.batch * options.capacity, ledger) {}

 private:
  std::int64_t slot_of(std::int64_t sequence, std::int64_t i) const override {
    return sequence * m_slots + m_lengths[sequence] + i;
  }
  void attend_sequence(const Exec& exec, std::int64_t layer, std::int64_t sequence, const ConstBatch& q,
                       const Batch& out, const AttentionOptions& options) override {
    const std::int64_t first = sequence * m_slots, count = this->length_in_step(sequence);
    this->run_attention(exec, q, this->keys(layer, first, count), this->values(layer, first, count), out,
                        options);
  }
  void copy_sequence(const Exec& exec, std::int64_t from, std::int64_t to) override {
    const std::int64_t count = m_lengths[from];
    if (count > 0) kv_copy(exec, m_pool.across(from * m_slots, count), m_pool.across(to * m_slots, count));
  }
};

}  // namespace kformer::Impl
