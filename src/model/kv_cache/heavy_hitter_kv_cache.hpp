// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/kv_cache_eviction.hpp"
#include "model/kv_cache/pooled_kv_cache.hpp"

/// \file
/// The cache that keeps what got the most attention (H2O, Zhang et al., arXiv:2306.14048, section 4).

namespace kformer::Impl {

/// Each key head keeps tokens of its own, in the order of their arrival; all keep the same number.
template <class Exec, class T>
class HeavyHitterKvCache final : public PooledKvCache<Exec, T> {
  using Base = PooledKvCache<Exec, T>;
  using Base::m_lengths, Base::m_new_tokens, Base::m_options, Base::m_pool, Base::m_slots, Base::m_config;
  using typename Base::Batch, typename Base::ConstBatch;
  using C = compute_t<T>;

 public:
  HeavyHitterKvCache(const LlamaConfig& config, const KvCacheOptions& options, Ledger& ledger)
      : Base(config, options, options.batch * kv_cache_slots(options), ledger),
        m_stored(static_cast<std::size_t>(options.batch)) {
    using Space = typename Exec::memory_space;
    const std::int64_t heads = options.num_layers * config.num_key_value_heads,
                       all = heads * options.batch * m_slots, rows = options.batch * options.max_step_tokens;
    MemoryLayout layout;
    const auto mass = layout.reserve<C>(all), positions = layout.reserve<std::int32_t>(all);
    m_state = ledger.allocate<Space>(MemoryClass::kv_cache, "KvCache::mass", layout.bytes());
    m_mass = m_state.template at<C>(mass);
    m_positions = m_state.template at<std::int32_t>(positions);

    MemoryLayout scratch;
    const bool masked = config.sliding_window > 0;
    const auto row_positions = scratch.reserve<std::int32_t>(rows),
               kept = scratch.reserve<std::int32_t>(heads * options.budget);
    const auto bias = scratch.reserve<T>(
        masked ? checked_product({config.num_attention_heads, options.max_step_tokens, m_slots}) : 0);
    m_scratch = ledger.allocate<Space>(MemoryClass::workspace, "KvCache::heavy_hitters", scratch.bytes());
    m_row_positions = {ledger, m_scratch.template at<std::int32_t>(row_positions), rows};
    m_kept = m_scratch.template at<std::int32_t>(kept);
    m_bias = m_scratch.template at<T>(bias);
  }

  std::int64_t stored(std::int64_t sequence) const override {
    this->length(sequence);  // that there is such a sequence
    return m_stored[sequence];
  }
  bool exact() const override { return m_options.capacity > 0 && m_options.capacity <= m_options.budget; }

 private:
  std::int64_t kv_heads() const { return m_config.num_key_value_heads; }

  // Slots [first, first + count) of a sequence out of (layers, batch, kv_heads, slots): (layers, count, heads,
  // 1).
  template <class U>
  StridedView<U****, Exec> slots_of(U* data, std::int64_t sequence, std::int64_t first,
                                    std::int64_t count) const {
    const std::int64_t of_layer = m_options.batch * kv_heads() * m_slots;
    return strided<U****, Exec>(data + sequence * kv_heads() * m_slots + first,
                                {m_options.num_layers, count, kv_heads(), 1}, {of_layer, 1, m_slots, 1});
  }
  // Those of one layer: (kv_heads, count).
  template <class U>
  StridedView<U**, Exec> heads_of(U* data, std::int64_t layer, std::int64_t sequence,
                                  std::int64_t count) const {
    return strided<U**, Exec>(data + (layer * m_options.batch + sequence) * kv_heads() * m_slots,
                              {kv_heads(), count}, {m_slots, 1});
  }

  void reserve(const Exec& exec) override {
    std::int64_t row = 0;
    for (std::int64_t s = 0; s < m_options.batch; ++s) {
      const std::int64_t count = m_new_tokens[s];
      if (count == 0) continue;
      for (std::int64_t i = 0; i < count; ++i)
        m_row_positions[row + i] = static_cast<std::int32_t>(m_lengths[s] + i);
      m_row_positions.upload(exec, row, count);
      const auto everywhere = strided<std::int32_t****, Exec>(
          m_row_positions.view(row, count).data(), {m_options.num_layers, count, kv_heads(), 1}, {0, 1, 0, 1});
      kv_copy(exec, everywhere, slots_of(m_positions, s, m_stored[s], count));
      row += count;
    }
  }
  std::int64_t slot_of(std::int64_t sequence, std::int64_t i) const override {
    return sequence * m_slots + m_stored[sequence] + i;
  }

  std::string refuse_window(std::int64_t window) const override {
    const bool hides = window > 0 && (m_options.capacity == 0 || window < m_options.capacity);
    if (!hides || m_config.sliding_window > 0) return {};
    return "a window of " + std::to_string(window) +
           " needs a mask, and the model has no sliding_window; set it in the configuration";
  }

  void attend_sequence(const Exec& exec, std::int64_t layer, std::int64_t sequence, const ConstBatch& q,
                       const Batch& out, const AttentionOptions& given) override {
    const std::int64_t rows = m_new_tokens[sequence], count = m_stored[sequence] + rows,
                       heads = m_config.num_attention_heads;
    const auto positions = heads_of(m_positions, layer, sequence, count);
    AttentionOptions options = given;
    AttentionExtras<Exec> extras;
    options.window = 0;
    if (given.window > 0 && given.window < this->length_in_step(sequence)) {
      kv_mask(exec, positions, strided<T***, Exec>(m_bias, {heads, rows, count}, {rows * count, count, 1}),
              {.model_window = given.window});
      extras.bias(strided<T****, Exec>(m_bias, {1, heads, rows, count},
                                       {heads * rows * count, rows * count, count, 1}));
    }
    const ConstBatch keys = this->keys(layer, sequence * m_slots, count);
    this->run_attention(exec, q, keys, this->values(layer, sequence * m_slots, count), out, options, extras);
    kv_attention_mass(exec, rows_of(q), rows_of(keys),
                      strided<C**, Exec>(this->m_lse, {heads, rows}, {rows, 1}), positions,
                      heads_of(m_mass, layer, sequence, count), given);
  }
  static auto rows_of(const ConstBatch& x) {
    const auto extent = [&](int r) { return static_cast<std::int64_t>(x.extent(r)); };
    const auto stride = [&](int r) { return static_cast<std::int64_t>(x.stride(r)); };
    return strided<const T***, Exec>(x.data(), {extent(1), extent(2), extent(3)},
                                     {stride(1), stride(2), stride(3)});
  }

  void finish_step(const Exec& exec) override {
    for (std::int64_t s = 0; s < m_options.batch; ++s) {
      m_stored[s] += m_new_tokens[s];
      if (m_stored[s] > m_options.budget) evict(exec, s);
    }
  }
  void evict(const Exec& exec, std::int64_t s) {
    const std::int64_t layers = m_options.num_layers, budget = m_options.budget, count = m_stored[s];
    const auto kept =
        strided<std::int32_t***, Exec>(m_kept, {layers, kv_heads(), budget}, {kv_heads() * budget, budget, 1});
    const auto mass = slots_of(m_mass, s, 0, count);
    kv_heavy_hitters(exec,
                     strided<C***, Exec>(mass.data(), {layers, kv_heads(), count},
                                         {m_options.batch * kv_heads() * m_slots, m_slots, 1}),
                     kept, m_options.recent);
    for (const int which : {0, 1}) kv_compact(exec, m_pool.across(which, 2, s * m_slots, count), kept);
    kv_compact(exec, mass, kept);
    kv_compact(exec, slots_of(m_positions, s, 0, count), kept);
    m_stored[s] = budget;
  }

  void copy_sequence(const Exec& exec, std::int64_t from, std::int64_t to) override {
    const std::int64_t count = m_stored[from];
    m_stored[to] = count;
    if (count == 0) return;
    kv_copy(exec, m_pool.across(from * m_slots, count), m_pool.across(to * m_slots, count));
    kv_copy(exec, slots_of(m_mass, from, 0, count), slots_of(m_mass, to, 0, count));
    kv_copy(exec, slots_of(m_positions, from, 0, count), slots_of(m_positions, to, 0, count));
  }

  std::string refuse_truncation(std::int64_t sequence, std::int64_t length) const override {
    if (length == 0 || length == m_lengths[sequence]) return {};
    return "the attention of dropped queries cannot be subtracted; reset sequence " + std::to_string(sequence) +
           " and feed its first " + std::to_string(length) + " tokens again";
  }
  void shorten(std::int64_t sequence, std::int64_t length) override {
    if (length == 0) m_stored[sequence] = 0;
  }

  std::vector<std::int64_t> m_stored;   // by sequence
  C* m_mass = nullptr;                  // (layers, batch, kv_heads, slots)
  std::int32_t* m_positions = nullptr;  // likewise
  IndexTable<Exec> m_row_positions;
  std::int32_t* m_kept = nullptr;  // (layers, kv_heads, budget)
  T* m_bias = nullptr;             // of a model with a window
  MemoryBlock<typename Exec::memory_space> m_state, m_scratch;
};

}  // namespace kformer::Impl
