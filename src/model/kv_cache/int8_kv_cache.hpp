// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_int8.hpp"
#include "model/kv_cache/kv_cache_base.hpp"

/// \file
/// The cache that keeps everything in 8 bits.

namespace kformer::Impl {

/// Sequence `s` owns slots [s · capacity, (s + 1) · capacity) of codes and scales. A layer of a sequence is
/// turned back into numbers before it is read.
template <class Exec, class T>
class Int8KvCache final : public KvCache<Exec, T> {
  using Base = KvCache<Exec, T>;
  using Base::m_lengths, Base::m_options, Base::m_slots;
  using typename Base::Batch, typename Base::ConstBatch, typename Base::ConstTokenHeads;
  using C = compute_t<T>;

 public:
  Int8KvCache(const LlamaConfig& config, const KvCacheOptions& options, Ledger& ledger)
      : Base(config, options, ledger) {
    using Space = typename Exec::memory_space;
    const std::int64_t arrays = 2 * options.num_layers, slots = options.batch * m_slots,
                       heads = config.num_key_value_heads;
    MemoryLayout layout;
    const auto codes = layout.reserve<std::uint8_t>(checked_product({arrays, slots, heads, config.head_dim}));
    const auto scales = layout.reserve<C>(arrays * slots * heads);
    m_block = ledger.allocate<Space>(MemoryClass::kv_cache, "KvCache::codes", layout.bytes());
    m_codes = {m_block.template at<std::uint8_t>(codes), arrays, slots, heads, config.head_dim};
    m_scales = {m_block.template at<C>(scales), arrays, slots, heads, 1};
    m_number_block = ledger.allocate<Space>(MemoryClass::workspace, "KvCache::numbers",
                                            array_bytes<T>({2, m_slots, heads, config.head_dim}));
    m_numbers = {m_number_block.template at<T>(0), 2, m_slots, heads, config.head_dim};
  }

  bool exact() const override { return false; }

 private:
  // Scales without the last extent of 1.
  auto scales(std::int64_t array, std::int64_t first, std::int64_t count) const {
    const auto rows = m_scales.rows(array, first, count);
    const auto heads = static_cast<std::int64_t>(rows.extent(1));
    return strided<C**, Exec>(rows.data(), {count, heads}, {heads, 1});
  }

  std::int64_t slot_of(std::int64_t sequence, std::int64_t i) const override {
    return sequence * m_slots + m_lengths[sequence] + i;
  }
  void append(const Exec& exec, std::int64_t layer, const ConstTokenHeads& k,
              const ConstTokenHeads& v) override {
    const std::int64_t keys = 2 * layer, values = keys + 1, all = m_options.batch * m_slots;
    kv_append_int8(
        exec, KvAppendInt8Operands{.k = k,
                                   .v = v,
                                   .slots = this->m_row_slots.view(0, static_cast<std::int64_t>(k.extent(0))),
                                   .k_codes = m_codes.rows(keys),
                                   .k_scale = scales(keys, 0, all),
                                   .v_codes = m_codes.rows(values),
                                   .v_scale = scales(values, 0, all)});
  }
  void attend_sequence(const Exec& exec, std::int64_t layer, std::int64_t sequence, const ConstBatch& q,
                       const Batch& out, const AttentionOptions& options) override {
    const std::int64_t keys = 2 * layer, values = keys + 1, first = sequence * m_slots,
                       count = this->length_in_step(sequence);
    kv_gather_int8(exec, KvGatherInt8Operands{.k_codes = m_codes.rows(keys, first, count),
                                              .k_scale = scales(keys, first, count),
                                              .v_codes = m_codes.rows(values, first, count),
                                              .v_scale = scales(values, first, count),
                                              .k = m_numbers.rows(0, 0, count),
                                              .v = m_numbers.rows(1, 0, count)});
    this->run_attention(exec, q, m_numbers.batch(0, 0, count), m_numbers.batch(1, 0, count), out, options);
  }
  void copy_sequence(const Exec& exec, std::int64_t from, std::int64_t to) override {
    const std::int64_t count = m_lengths[from];
    if (count == 0) return;
    kv_copy(exec, m_codes.across(from * m_slots, count), m_codes.across(to * m_slots, count));
    kv_copy(exec, m_scales.across(from * m_slots, count), m_scales.across(to * m_slots, count));
  }

  SlotArrays<Exec, std::uint8_t> m_codes;
  SlotArrays<Exec, C> m_scales;
  SlotArrays<Exec, T> m_numbers;  // keys and values of a layer and sequence
  MemoryBlock<typename Exec::memory_space> m_block, m_number_block;
};

}  // namespace kformer::Impl
