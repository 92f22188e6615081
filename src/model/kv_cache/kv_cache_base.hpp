// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>

#include "kformer/model/kv_cache.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "model/kv_cache/slot_arrays.hpp"

/// \file
/// Definitions of KvCache's members: what all kinds share.

namespace kformer {

namespace Impl {

/// Most bytes that attention with few queries wants to split the keys, up to so many queries and keys.
template <class Exec>
std::size_t decode_workspace_bytes(AttentionShape shape, std::int64_t most_queries) {
  // With more queries no kernel splits the keys.
  constexpr std::int64_t few = 64;
  std::size_t bytes = 0;
  for (shape.q_len = 1; shape.q_len <= std::min(most_queries, few); ++shape.q_len)
    bytes = std::max(bytes, attention_forward_workspace_bytes(Exec(), shape, {.causal = true}));
  return bytes;
}

/// Rows [first, first + count) of (rows, heads, head_dim) as a batch of one sequence.
template <class Exec, class V>
auto batch_of_one(const V& rows, std::int64_t first, std::int64_t count) {
  using Data = std::remove_pointer_t<decltype(rows.data())>;
  const auto extent = [&](int r) { return static_cast<std::int64_t>(rows.extent(r)); };
  const auto stride = [&](int r) { return static_cast<std::int64_t>(rows.stride(r)); };
  return strided<Data****, Exec>(rows.data() + first * stride(0), {1, count, extent(1), extent(2)},
                                 {count * stride(0), stride(0), stride(1), stride(2)});
}

}  // namespace Impl

template <class Exec, Scalar T>
KvCache<Exec, T>::KvCache(const LlamaConfig& config, const KvCacheOptions& options, Ledger& ledger)
    : m_config(config),
      m_options(options),
      m_slots(Impl::kv_cache_slots(options)),
      m_lengths(static_cast<std::size_t>(options.batch)),
      m_new_tokens(static_cast<std::size_t>(options.batch)) {
  using C = compute_t<T>;
  const std::int64_t heads = config.num_attention_heads, rows = options.batch * options.max_step_tokens;
  const AttentionShape shape{dtype_of<T>,    1, 0, m_slots, heads, config.num_key_value_heads, config.head_dim,
                             config.head_dim};
  const std::size_t bytes = Impl::decode_workspace_bytes<Exec>(shape, options.max_step_tokens);
  MemoryLayout layout;
  const auto slots = layout.reserve<std::int32_t>(rows);
  const auto lse = layout.reserve<C>(heads * options.max_step_tokens);
  const auto workspace = layout.reserve<std::byte>(static_cast<std::int64_t>(bytes));
  m_scratch = ledger.allocate<memory_space>(MemoryClass::workspace, "KvCache::attention", layout.bytes());
  m_row_slots = {ledger, m_scratch.template at<std::int32_t>(slots), rows};
  m_lse = m_scratch.template at<C>(lse);
  m_workspace = decltype(m_workspace)(m_scratch.template at<std::byte>(workspace), bytes);
}

template <class Exec, Scalar T>
KvCache<Exec, T>::~KvCache() = default;

template <class Exec, Scalar T>
void KvCache<Exec, T>::require(bool condition, const char* function, const std::string& sentence) const {
  if (!condition)
    throw NotSupported(std::string("kformer::KvCache::") + function + ": " + sentence + " (" +
                       name_of(m_options.kind).data() + " cache)");
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::require_closed(const char* function) const {
  require(!m_open, function, "a step is open; call end_step first");
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::require_sequence(const char* function, std::int64_t sequence) const {
  require(
      sequence >= 0 && sequence < m_options.batch, function,
      "there is no sequence " + std::to_string(sequence) + " in a batch of " + std::to_string(m_options.batch));
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::require_counts(const char* function, std::span<const std::int64_t> new_tokens) const {
  require(static_cast<std::int64_t>(new_tokens.size()) == m_options.batch, function,
          "new_tokens has " + std::to_string(new_tokens.size()) + " numbers, expected " +
              std::to_string(m_options.batch) + ", one for each sequence of the batch");
}

template <class Exec, Scalar T>
bool KvCache<Exec, T>::has_room(std::span<const std::int64_t> new_tokens) const {
  require_counts("has_room", new_tokens);
  for (std::int64_t s = 0; s < m_options.batch; ++s)
    if (m_options.capacity > 0 && new_tokens[s] > m_options.capacity - length(s)) return false;
  return refuse_step(new_tokens).empty();
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::begin_step(const Exec& exec, std::span<const std::int64_t> new_tokens) {
  require_closed("begin_step");
  Impl::require_allocated("KvCache::begin_step", "the cache", m_scratch.data(), m_scratch.bytes());
  require_counts("begin_step", new_tokens);
  for (std::int64_t s = 0; s < m_options.batch; ++s) {
    const std::int64_t count = new_tokens[s];
    const std::string sequence = "sequence " + std::to_string(s);
    require(count >= 0 && count <= m_options.max_step_tokens, "begin_step",
            sequence + " gets " + std::to_string(count) + " new tokens, a step takes 0 to " +
                std::to_string(m_options.max_step_tokens) + "; split the step");
    require(m_options.capacity == 0 || count <= m_options.capacity - length(s), "begin_step",
            sequence + " would have " + std::to_string(length(s) + count) + " tokens, its capacity is " +
                std::to_string(m_options.capacity) + "; make the cache larger, truncate or reset the sequence");
  }
  const std::string refusal = refuse_step(new_tokens);
  require(refusal.empty(), "begin_step", refusal);

  std::copy(new_tokens.begin(), new_tokens.end(), m_new_tokens.begin());
  reserve(exec);
  std::int64_t row = 0;
  for (std::int64_t s = 0; s < m_options.batch; ++s)
    for (std::int64_t i = 0; i < new_tokens[s]; ++i)
      m_row_slots[row++] = static_cast<std::int32_t>(slot_of(s, i));
  m_row_slots.upload(exec, 0, row);
  // The host may change its lists again only when they have been copied.
  if constexpr (!Impl::is_host_space<Exec>) exec.fence("kformer::KvCache::begin_step");
  m_rows = row;
  m_open = true;
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::attend(const Exec& exec, std::int64_t layer, const ConstTokenHeads& q,
                              const ConstTokenHeads& k, const ConstTokenHeads& v, const TokenHeads& out,
                              const AttentionOptions& given) {
  require(m_open, "attend", "no step is open; call begin_step first");
  require(layer >= 0 && layer < m_options.num_layers, "attend",
          "layer " + std::to_string(layer) + " is outside the " + std::to_string(m_options.num_layers) +
              " layers of the cache; expected 0 to " + std::to_string(m_options.num_layers - 1));
  require(given.window >= 0, "attend", "window must not be negative, got " + std::to_string(given.window));
  const Operands all(
      "KvCache::attend",
      {{"q", tensor_ref(q)}, {"k", tensor_ref(k)}, {"v", tensor_ref(v)}, {"out", tensor_ref(out)}});
  const std::int64_t heads = m_config.num_attention_heads, kv_heads = m_config.num_key_value_heads,
                     dim = m_config.head_dim;
  all.require_extents(
         tensor_ref(q).has_extents({m_rows, heads, dim}) && tensor_ref(out).same_extents(tensor_ref(q)) &&
             tensor_ref(k).has_extents({m_rows, kv_heads, dim}) && tensor_ref(v).same_extents(tensor_ref(k)),
         "q[" + std::to_string(m_rows) + "," + std::to_string(heads) + "," + std::to_string(dim) +
             "] like out and k[" + std::to_string(m_rows) + "," + std::to_string(kv_heads) + "," +
             std::to_string(dim) + "] like v, the rows of the step")
      .require_unit_stride();
  AttentionOptions options = given;
  options.causal = true;
  if (options.window == 0) options.window = m_config.sliding_window;
  const std::string refusal = refuse_window(options.window);
  require(refusal.empty(), "attend", refusal);
  if (m_rows == 0) return;
  append(exec, layer, k, v);
  std::int64_t row = 0;
  for (std::int64_t s = 0; s < m_options.batch; ++s) {
    const std::int64_t count = m_new_tokens[s];
    if (count > 0)
      attend_sequence(exec, layer, s, Impl::batch_of_one<Exec>(q, row, count),
                      Impl::batch_of_one<Exec>(out, row, count), options);
    row += count;
  }
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::end_step(const Exec& exec) {
  require(m_open, "end_step", "no step is open; call begin_step first");
  finish_step(exec);
  for (std::int64_t s = 0; s < m_options.batch; ++s) m_lengths[s] += m_new_tokens[s];
  m_open = false;
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::cancel_step() {
  require(m_open, "cancel_step", "no step is open; call begin_step first");
  m_open = false;
  for (std::int64_t s = 0; s < m_options.batch; ++s)
    if (m_new_tokens[s] > 0) shorten(s, m_lengths[s]);
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::fork(const Exec& exec, std::int64_t from, std::int64_t to) {
  require_closed("fork");
  require_sequence("fork", from);
  require_sequence("fork", to);
  if (from == to) return;
  copy_sequence(exec, from, to);
  m_lengths[to] = m_lengths[from];
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::truncate(std::int64_t sequence, std::int64_t new_length) {
  require_closed("truncate");
  require_sequence("truncate", sequence);
  require(new_length >= 0 && new_length <= length(sequence), "truncate",
          "sequence " + std::to_string(sequence) + " has " + std::to_string(length(sequence)) +
              " tokens, it cannot be cut to " + std::to_string(new_length));
  const std::string refusal = refuse_truncation(sequence, new_length);
  require(refusal.empty(), "truncate", refusal);
  shorten(sequence, new_length);
  m_lengths[sequence] = new_length;
}

template <class Exec, Scalar T>
void KvCache<Exec, T>::run_attention(const Exec& exec, const ConstBatch& q, const ConstBatch& k,
                                     const ConstBatch& v, const Batch& out, const AttentionOptions& options,
                                     const AttentionExtras<Exec>& extras) const {
  const Kokkos::View<compute_t<T>***, Kokkos::LayoutRight, memory_space,
                     Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      lse(m_lse, 1, q.extent(2), q.extent(1));
  attention_forward(exec, q, k, v, out, lse, options, extras, m_workspace);
}

}  // namespace kformer
