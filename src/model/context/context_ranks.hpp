// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/memory/arena.hpp"
#include "kformer/model/impl/context_ranks.hpp"
#include "kformer/ops/attention.hpp"
#include "model/context/gather.hpp"
#include "model/context/operands.hpp"
#include "model/context/ring.hpp"

/// \file
/// Definitions of ContextRanks' members: those common to both ways of exchanging keys and values.

namespace kformer::Impl {

template <class Exec, Scalar T>
ContextRanks<Exec, T>::ContextRanks(const LlamaConfig& config, LayerShape shape, const LayerOptions& options,
                                    Ledger& ledger)
    : m_slice{shape.seq_len / 2, options.context->rank(), options.context->size()},
      m_exchange(options.context_exchange),
      m_batch(shape.batch),
      m_heads(config.num_attention_heads),
      m_kv_heads(config.num_key_value_heads),
      m_head_dim(config.head_dim),
      m_packed(options.packed),
      m_ranks(options.context, {}, ledger) {
  const std::int64_t own = shape.rows(), all = own * m_slice.ranks, width = 2 * m_kv_heads * m_head_dim,
                     q_width = m_heads * m_head_dim;
  const bool trains = options.mode == LayerMode::training;
  Arena<memory_space> arena;
  if (m_exchange == ContextExchange::all_gather) {
    arena.add(m_own, own, width);
    arena.add(m_by_rank, all, width);
    arena.add(m_whole, all, width);
    if (trains) arena.add(m_d_whole, all, width);
  } else {
    for (Matrix& pair : m_pair) arena.add(pair, own, width);
    arena.add(m_part, own, q_width);
    arena.add(m_sum, own, q_width);
    arena.overlap([&] { arena.add(m_part_lse, m_batch, m_heads, shape.seq_len); },
                  [&] {
                    if (!trains) return;
                    arena.add(m_d_pair, own, width);
                    for (Sums& sum : m_d_sum) arena.add(sum, own, width);
                  });
    const auto elements = static_cast<std::size_t>(own * width);
    m_messages.emplace(options.context, elements * (sizeof(T) + (trains ? sizeof(C) : 0)), ledger);
  }
  if (m_packed) {
    arena.add(m_query_starts, all + 1);
    arena.add(m_key_starts, all + 1);
  }
  m_block = arena.allocate(ledger, MemoryClass::workspace, "DecoderLayer::context");
}

template <class Exec, Scalar T>
template <class V>
V ContextRanks<Exec, T>::chunks_of(const V& all, Chunks chunks) const {
  const auto chunk = static_cast<std::size_t>(m_slice.chunk);
  const Range tokens(static_cast<std::size_t>(chunks.begin) * chunk,
                     static_cast<std::size_t>(chunks.end) * chunk);
  if constexpr (V::rank() == 4)
    return Kokkos::subview(all, Kokkos::ALL, tokens, Kokkos::ALL, Kokkos::ALL);
  else
    return Kokkos::subview(all, Kokkos::ALL, Kokkos::ALL, tokens);
}

template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Heads ContextRanks<Exec, T>::half_of(const Heads& all, int half) const {
  return chunks_of(all, {half, half + 1});
}

template <class Exec, Scalar T>
TokenRuns ContextRanks<Exec, T>::runs_of(int rank, Chunks chunks) const {
  const std::int64_t chunk = m_slice.chunk;
  return {{m_slice.first_of(rank, chunks.begin), m_slice.first_of(rank, 1)},
          {chunk, (chunks.end - chunks.begin - 1) * chunk}};
}

template <class Exec, Scalar T>
template <class U>
typename ContextRanks<Exec, T>::template HeadsOf<U> ContextRanks<Exec, T>::pair_in(const MatrixOf<U>& from,
                                                                                   int which) const {
  return heads_of_sequences(from, m_batch, which * m_kv_heads, m_kv_heads, m_head_dim);
}

template <class Exec, Scalar T>
template <class U>
typename ContextRanks<Exec, T>::template HeadsOf<U> ContextRanks<Exec, T>::queries_in(
    const MatrixOf<U>& from) const {
  return heads_of_sequences(from, m_batch, 0, m_heads, m_head_dim);
}

template <class Exec, Scalar T>
template <class F>
void ContextRanks<Exec, T>::for_sequences(const Exec& exec, const Operands& o, const TokenRuns& queries,
                                          const TokenRuns& keys, F f) {
  const auto batch = static_cast<std::size_t>(m_batch);
  if (!m_packed) return f(Range(0, batch), Extras());
  const Range borders(0, o.starts.extent(0));
  for (std::size_t i = 0; i < batch; ++i) {
    place_documents(exec, o.starts, static_cast<std::int64_t>(i) * m_slice.whole(), queries, keys,
                    m_query_starts, m_key_starts);
    f(Range(i, i + 1),
      Extras().sequences(Kokkos::subview(m_query_starts, borders), Kokkos::subview(m_key_starts, borders)));
  }
}

template <class Exec, Scalar T>
std::size_t ContextRanks<Exec, T>::workspace_bytes(const AttentionOptions& options) const {
  const auto bytes = [&](std::int64_t queries, std::int64_t keys, bool causal) {
    AttentionOptions part = options;
    part.causal = causal;
    const AttentionShape shape{
        dtype_of<T>, m_packed ? std::int64_t(1) : m_batch, queries, keys, m_heads, m_kv_heads, m_head_dim,
        m_head_dim};
    return attention_backward_workspace_bytes(Exec(), shape, part);
  };
  const std::int64_t chunk = m_slice.chunk;
  if (m_exchange == ContextExchange::ring)
    return std::max({bytes(2 * chunk, 2 * chunk, options.causal), bytes(2 * chunk, 2 * chunk, false),
                     bytes(2 * chunk, chunk, false), bytes(chunk, 2 * chunk, false)});
  return std::max(bytes(chunk, keys_of(0, options).count(), options.causal),
                  bytes(chunk, keys_of(1, options).count(), options.causal));
}

template <class Exec, Scalar T>
void ContextRanks<Exec, T>::forward(const Exec& exec, const Operands& o) {
  if (m_exchange == ContextExchange::ring)
    forward_in_ring(exec, o);
  else
    forward_gathered(exec, o);
}

template <class Exec, Scalar T>
void ContextRanks<Exec, T>::backward(const Exec& exec, const Operands& o, const Gradients& g) {
  if (m_exchange == ContextExchange::ring)
    backward_in_ring(exec, o, g);
  else
    backward_gathered(exec, o, g);
}

}  // namespace kformer::Impl
