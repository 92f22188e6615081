// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/kv_cache_eviction.hpp"
#include "model/kv_cache/pooled_kv_cache.hpp"

/// \file
/// The cache that keeps the first tokens and the last ones (Xiao et al., arXiv:2309.17453, section 3.2).

namespace kformer::Impl {

/// In the slots of a sequence the sinks come first, then tokens without a gap up to the last one. Tokens that
/// no query will see pile up between them until there are `kv_window_slack` of them.
template <class Exec, class T>
class WindowKvCache final : public PooledKvCache<Exec, T> {
  using Base = PooledKvCache<Exec, T>;
  using Base::m_lengths, Base::m_new_tokens, Base::m_options, Base::m_pool, Base::m_slots, Base::m_config;
  using typename Base::Batch, typename Base::ConstBatch;

 public:
  WindowKvCache(const LlamaConfig& config, const KvCacheOptions& options, Ledger& ledger)
      : Base(config, options, options.batch * kv_cache_slots(options), ledger),
        m_stored(static_cast<std::size_t>(options.batch)) {
    MemoryLayout layout;
    const std::int64_t slots = options.batch * m_slots;
    const auto positions = layout.reserve<std::int32_t>(options.sinks > 0 ? slots : 0);
    const auto kept = layout.reserve<std::int32_t>(options.batch * needed());
    const auto bias = layout.reserve<T>(options.sinks > 0 ? options.max_step_tokens * m_slots : 0);
    m_block =
        ledger.allocate<typename Exec::memory_space>(MemoryClass::workspace, "KvCache::window", layout.bytes());
    m_positions = {ledger, m_block.template at<std::int32_t>(positions), options.sinks > 0 ? slots : 0};
    m_kept = {ledger, m_block.template at<std::int32_t>(kept), options.batch * needed()};
    m_bias = m_block.template at<T>(bias);
  }

  std::int64_t stored(std::int64_t sequence) const override {
    this->length(sequence);  // that there is such a sequence
    return m_stored[sequence];
  }
  bool exact() const override {
    const bool all = m_options.capacity > 0 && m_options.capacity <= m_options.sinks + m_options.window;
    return all || (m_config.sliding_window > 0 && m_config.sliding_window <= m_options.window);
  }

 private:
  // Tokens that the next query may see besides itself.
  std::int64_t needed() const { return m_options.sinks + m_options.window - 1; }
  // Tokens between the sinks and the others that are no longer there.
  std::int64_t dropped(std::int64_t sequence) const { return m_lengths[sequence] - m_stored[sequence]; }
  // Whether queries of the step see sinks that are farther away than the window.
  bool needs_mask(std::int64_t sequence) const {
    return m_options.sinks > 0 && this->length_in_step(sequence) > m_options.sinks + m_options.window;
  }

  void reserve(const Exec& exec) override {
    for (std::int64_t s = 0; s < m_options.batch; ++s) {
      if (m_new_tokens[s] == 0 || !needs_mask(s)) continue;
      const std::int64_t first = s * m_slots, count = m_stored[s] + m_new_tokens[s], gap = dropped(s);
      for (std::int64_t n = 0; n < count; ++n)
        m_positions[first + n] = static_cast<std::int32_t>(n < m_options.sinks ? n : n + gap);
      m_positions.upload(exec, first, count);
    }
  }
  std::int64_t slot_of(std::int64_t sequence, std::int64_t i) const override {
    return sequence * m_slots + m_stored[sequence] + i;
  }

  void attend_sequence(const Exec& exec, std::int64_t layer, std::int64_t sequence, const ConstBatch& q,
                       const Batch& out, const AttentionOptions& given) override {
    const std::int64_t first = sequence * m_slots, rows = m_new_tokens[sequence],
                       count = m_stored[sequence] + rows;
    AttentionOptions options = given;
    AttentionExtras<Exec> extras;
    if (needs_mask(sequence)) {
      const auto bias =
          strided<T****, Exec>(m_bias, {1, 1, rows, count}, {rows * count, rows * count, count, 1});
      const auto one_head = strided<T***, Exec>(m_bias, {1, rows, count}, {rows * count, count, 1});
      const auto positions =
          strided<std::int32_t**, Exec>(m_positions.view(first, count).data(), {1, count}, {count, 1});
      kv_mask(exec, positions, one_head,
              {.window = m_options.window, .sinks = m_options.sinks, .model_window = given.window});
      extras.bias(bias);
      options.window = 0;
    } else if (m_options.sinks == 0 && (given.window == 0 || m_options.window < given.window)) {
      options.window = m_options.window;
    }
    this->run_attention(exec, q, this->keys(layer, first, count), this->values(layer, first, count), out,
                        options, extras);
  }

  void finish_step(const Exec& exec) override {
    for (std::int64_t s = 0; s < m_options.batch; ++s) {
      m_stored[s] += m_new_tokens[s];
      if (m_stored[s] <= needed() + kv_window_slack(m_options)) continue;
      const std::int64_t kept = s * needed(), gap = m_stored[s] - needed();
      for (std::int64_t n = 0; n < needed(); ++n)
        m_kept[kept + n] = static_cast<std::int32_t>(n < m_options.sinks ? n : n + gap);
      m_kept.upload(exec, kept, needed());
      const auto slots = strided<std::int32_t***, Exec>(m_kept.view(kept, needed()).data(), {1, 1, needed()},
                                                        {needed(), needed(), 1});
      kv_compact(exec, m_pool.across(s * m_slots, m_stored[s]), slots);
      m_stored[s] = needed();
    }
  }

  void copy_sequence(const Exec& exec, std::int64_t from, std::int64_t to) override {
    const std::int64_t count = m_stored[from];
    if (count > 0) kv_copy(exec, m_pool.across(from * m_slots, count), m_pool.across(to * m_slots, count));
    m_stored[to] = count;
  }

  // The first position after the sinks that is there; the length if there is none.
  std::int64_t first_kept(std::int64_t sequence) const { return m_options.sinks + dropped(sequence); }

  std::string refuse_truncation(std::int64_t sequence, std::int64_t length) const override {
    if (dropped(sequence) == 0 || length <= m_options.sinks) return {};
    const std::int64_t least = first_kept(sequence) + m_options.window - 1;
    if (length >= least || m_options.window == 1) return {};
    return "sequence " + std::to_string(sequence) + " has dropped tokens that a query at position " +
           std::to_string(length) + " would see; cut it to " + std::to_string(least) +
           " tokens or more, or to " + std::to_string(m_options.sinks) + " or less";
  }
  void shorten(std::int64_t sequence, std::int64_t length) override {
    const std::int64_t after_sinks = std::max<std::int64_t>(0, length - first_kept(sequence));
    m_stored[sequence] = dropped(sequence) == 0 ? length : std::min(length, m_options.sinks) + after_sinks;
  }

  std::vector<std::int64_t> m_stored;    // by sequence
  IndexTable<Exec> m_positions, m_kept;  // of slots, by sequence
  T* m_bias = nullptr;                   // of one sequence
  MemoryBlock<typename Exec::memory_space> m_block;
};

}  // namespace kformer::Impl
