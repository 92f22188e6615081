// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/launch.hpp"
#include "model/kv_cache/page_tables.hpp"
#include "model/kv_cache/pooled_kv_cache.hpp"

/// \file
/// The cache that keeps everything in pages (Kwon et al., arXiv:2309.06180, section 4).

namespace kformer::Impl {

/// A page is page_tokens slots of all layers. A sequence whose pages do not lie one after the other is gathered
/// before it is read.
template <class Exec, class T>
class PagedKvCache final : public PooledKvCache<Exec, T> {
  using Base = PooledKvCache<Exec, T>;
  using Base::m_lengths, Base::m_new_tokens, Base::m_options, Base::m_pool, Base::m_slots;
  using typename Base::Batch, typename Base::ConstBatch;

 public:
  PagedKvCache(const LlamaConfig& config, const KvCacheOptions& options, Ledger& ledger)
      : Base(config, options, options.pages * options.page_tokens, ledger),
        m_pages(options.batch, options.pages, ceil_div(options.capacity, options.page_tokens)) {
    using Space = typename Exec::memory_space;
    const std::int64_t indices = options.batch * m_pages.most_of_sequence();
    m_table_block = ledger.allocate<Space>(MemoryClass::kv_cache, "KvCache::page_tables",
                                           array_bytes<std::int32_t>({indices}));
    m_tables = {ledger, m_table_block.template at<std::int32_t>(0), indices};
    m_gathered_block =
        ledger.allocate<Space>(MemoryClass::workspace, "KvCache::gathered",
                               array_bytes<T>({2, m_slots, config.num_key_value_heads, config.head_dim}));
    m_gathered = {m_gathered_block.template at<T>(0), 2, m_slots, config.num_key_value_heads, config.head_dim};
  }

  std::int64_t used_slots() const override { return m_pages.used() * m_options.page_tokens; }

 private:
  std::int64_t pages_of(std::int64_t tokens) const { return ceil_div(tokens, m_options.page_tokens); }
  // The page where the next token of a sequence goes, if it has tokens of others already; else −1.
  std::int64_t begun_page(std::int64_t sequence) const {
    const std::int64_t length = m_lengths[sequence];
    return length % m_options.page_tokens == 0 ? -1 : length / m_options.page_tokens;
  }

  std::string refuse_step(std::span<const std::int64_t> new_tokens) const override {
    std::int64_t needed = 0;
    for (std::int64_t s = 0; s < m_options.batch; ++s)
      if (new_tokens[s] > 0) needed += pages_of(m_lengths[s] + new_tokens[s]) - m_pages.count(s);
    needed += m_pages.copies_needed([&](std::int64_t s) { return new_tokens[s] > 0 ? begun_page(s) : -1; });
    if (needed <= m_pages.free()) return {};
    return "the step needs " + std::to_string(needed) + " more pages of " +
           std::to_string(m_options.page_tokens) + " tokens, " + std::to_string(m_pages.free()) + " of " +
           std::to_string(m_options.pages) +
           " are free; make the cache with more pages, truncate or reset sequences";
  }

  void reserve(const Exec& exec) override {
    for (std::int64_t s = 0; s < m_options.batch; ++s) {
      if (m_new_tokens[s] == 0) continue;
      if (const std::int64_t begun = begun_page(s); begun >= 0 && m_pages.shared(s, begun)) {
        const std::int64_t size = m_options.page_tokens, old = m_pages.at(s, begun);
        const std::int64_t own = m_pages.replace(s, begun), used = m_lengths[s] % size;
        kv_copy(exec, m_pool.across(old * size, used), m_pool.across(own * size, used));
      }
      m_pages.grow(s, pages_of(this->length_in_step(s)));
      const std::int64_t first = s * m_pages.most_of_sequence();
      for (std::int64_t n = 0; n < m_pages.count(s); ++n)
        m_tables[first + n] = static_cast<std::int32_t>(m_pages.at(s, n));
      m_tables.upload(exec, first, m_pages.count(s));
    }
  }

  std::int64_t slot_of(std::int64_t sequence, std::int64_t i) const override {
    const std::int64_t size = m_options.page_tokens, position = m_lengths[sequence] + i;
    return m_pages.at(sequence, position / size) * size + position % size;
  }

  void attend_sequence(const Exec& exec, std::int64_t layer, std::int64_t sequence, const ConstBatch& q,
                       const Batch& out, const AttentionOptions& options) override {
    const std::int64_t count = this->length_in_step(sequence);
    if (m_pages.consecutive(sequence)) {
      const std::int64_t first = m_pages.at(sequence, 0) * m_options.page_tokens;
      this->run_attention(exec, q, this->keys(layer, first, count), this->values(layer, first, count), out,
                          options);
      return;
    }
    kv_gather(exec, m_pool.rows(2 * layer), m_pool.rows(2 * layer + 1),
              m_tables.view(sequence * m_pages.most_of_sequence(), m_pages.count(sequence)),
              m_gathered.rows(0, 0, count), m_gathered.rows(1, 0, count), m_options.page_tokens);
    this->run_attention(exec, q, m_gathered.batch(0, 0, count), m_gathered.batch(1, 0, count), out, options);
  }

  void copy_sequence(const Exec&, std::int64_t from, std::int64_t to) override { m_pages.share(from, to); }
  void shorten(std::int64_t sequence, std::int64_t length) override {
    m_pages.shrink(sequence, pages_of(length));
  }

  PageTables m_pages;
  IndexTable<Exec> m_tables;  // of all sequences, where kernels read
  SlotArrays<Exec, T> m_gathered;
  MemoryBlock<typename Exec::memory_space> m_table_block, m_gathered_block;
};

}  // namespace kformer::Impl
