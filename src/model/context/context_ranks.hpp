// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <utility>

#include "kformer/memory/arena.hpp"
#include "kformer/model/impl/context_ranks.hpp"
#include "kformer/ops/attention.hpp"
#include "model/tools/head_views.hpp"

/// \file
/// Definitions of ContextRanks' members.

namespace kformer::Impl {

/// Copies rows that are ordered by rank, sequence and token to their places in whole sequences, or back.
template <class Exec, class Matrix>
void reorder_tokens(const Exec& exec, const ContextSlice& slice, const Matrix& by_rank, const Matrix& by_token,
                    bool to_tokens) {
  const auto width = static_cast<std::int64_t>(by_rank.extent(1)),
             own = static_cast<std::int64_t>(by_rank.extent(0)) / slice.ranks;
  Kokkos::parallel_for(
      "kformer::DecoderLayer::reorder_tokens", Kokkos::RangePolicy<Exec>(exec, 0, slice.ranks * own * width),
      KOKKOS_LAMBDA(std::int64_t i) {
        const std::int64_t row = i / width, column = i % width;
        const std::int64_t token = slice.token_of(static_cast<int>(row / own), row % own);
        if (to_tokens)
          by_token(token, column) = by_rank(row, column);
        else
          by_rank(row, column) = by_token(token, column);
      });
}

/// Where documents begin among some queries and among some keys of the sequence whose first token is number `sequence`
/// of all. A document of which none is there is empty: so every document counts, though most lie elsewhere.
template <class Exec, class Starts, class To>
void place_documents(const Exec& exec, const Starts& starts, std::int64_t sequence, const TokenRuns& queries,
                     const TokenRuns& keys, const To& query_starts, const To& key_starts) {
  Kokkos::parallel_for(
      "kformer::DecoderLayer::place_documents", Kokkos::RangePolicy<Exec>(exec, 0, starts.extent(0)),
      KOKKOS_LAMBDA(std::size_t i) {
        const std::int64_t token = starts(i) - sequence;
        query_starts(i) = static_cast<std::int32_t>(queries.before(token));
        key_starts(i) = static_cast<std::int32_t>(keys.before(token));
      });
}

template <class Exec, Scalar T>
ContextRanks<Exec, T>::ContextRanks(const LlamaConfig& config, LayerShape shape, const LayerOptions& options,
                                    Ledger& ledger)
    : m_slice{shape.seq_len / 2, options.context->rank(), options.context->size()},
      m_batch(shape.batch),
      m_heads(config.num_attention_heads),
      m_kv_heads(config.num_key_value_heads),
      m_head_dim(config.head_dim),
      m_packed(options.packed),
      m_ranks(options.context, {}, ledger) {
  const std::int64_t own = shape.rows(), all = own * m_slice.ranks, width = 2 * m_kv_heads * m_head_dim;
  Arena<memory_space> arena;
  arena.add(m_own, own, width);
  arena.add(m_by_rank, all, width);
  arena.add(m_whole, all, width);
  if (options.mode == LayerMode::training) arena.add(m_d_whole, all, width);
  if (m_packed) {
    arena.add(m_query_starts, all + 1);
    arena.add(m_key_starts, all + 1);
  }
  m_block = arena.allocate(ledger, MemoryClass::workspace, "DecoderLayer::context");
}

template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Heads ContextRanks<Exec, T>::half_of(const Heads& all, int half) const {
  const auto begin = static_cast<std::size_t>(half * m_slice.chunk);
  return Kokkos::subview(all, Kokkos::ALL, Range(begin, begin + static_cast<std::size_t>(m_slice.chunk)),
                         Kokkos::ALL, Kokkos::ALL);
}

template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Lse ContextRanks<Exec, T>::half_of(const Lse& all, int half) const {
  const auto begin = static_cast<std::size_t>(half * m_slice.chunk);
  return Kokkos::subview(all, Kokkos::ALL, Kokkos::ALL,
                         Range(begin, begin + static_cast<std::size_t>(m_slice.chunk)));
}

template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Heads ContextRanks<Exec, T>::heads_in(const Matrix& from, int which,
                                                                      std::int64_t tokens) const {
  const Heads all = heads_of_sequences(from, m_batch, which * m_kv_heads, m_kv_heads, m_head_dim);
  return Kokkos::subview(all, Kokkos::ALL, Range(0, static_cast<std::size_t>(tokens)), Kokkos::ALL,
                         Kokkos::ALL);
}

/// Some sequences of q, k, v, …, or of lse.
template <class V>
V sequences_of(const V& all, std::pair<std::size_t, std::size_t> some) {
  if constexpr (V::rank() == 4)
    return Kokkos::subview(all, some, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL);
  else
    return Kokkos::subview(all, some, Kokkos::ALL, Kokkos::ALL);
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
  const auto bytes = [&](int half) {
    const AttentionShape shape{dtype_of<T>,   m_packed ? std::int64_t(1) : m_batch,
                               m_slice.chunk, keys_of(half, options).count(),
                               m_heads,       m_kv_heads,
                               m_head_dim,    m_head_dim};
    return attention_backward_workspace_bytes(Exec(), shape, options);
  };
  return std::max(bytes(0), bytes(1));
}

// Leaves keys and values of all tokens in m_whole.
template <class Exec, Scalar T>
void ContextRanks<Exec, T>::gather(const Exec& exec, const Heads& k, const Heads& v) {
  Kokkos::deep_copy(exec, heads_in(m_own, 0, 2 * m_slice.chunk), k);
  Kokkos::deep_copy(exec, heads_in(m_own, 1, 2 * m_slice.chunk), v);
  m_ranks.all_gather(exec, m_own, m_by_rank, "keys and values");
  reorder_tokens(exec, m_slice, m_by_rank, m_whole, true);
}

template <class Exec, Scalar T>
void ContextRanks<Exec, T>::forward(const Exec& exec, const Operands& o) {
  gather(exec, o.k, o.v);
  for (const int half : {0, 1}) {
    const TokenRuns keys = keys_of(half, o.options);
    for_sequences(exec, o, queries_of(half), keys, [&](Range some, const Extras& documents) {
      attention_forward(
          exec, sequences_of(half_of(o.q, half), some), sequences_of(heads_in(m_whole, 0, keys.count()), some),
          sequences_of(heads_in(m_whole, 1, keys.count()), some), sequences_of(half_of(o.out, half), some),
          sequences_of(half_of(o.lse, half), some), o.options, documents);
    });
  }
}

/// sum += x
template <class Exec, class Heads>
void add_heads(const Exec& exec, const Heads& sum, const Heads& x) {
  using T = typename Heads::value_type;
  using C = compute_t<T>;
  Kokkos::parallel_for(
      "kformer::DecoderLayer::add_heads",
      Kokkos::MDRangePolicy<Exec, Kokkos::Rank<4>>(exec, {0, 0, 0, 0},
                                                   {x.extent(0), x.extent(1), x.extent(2), x.extent(3)}),
      KOKKOS_LAMBDA(std::size_t b, std::size_t s, std::size_t h, std::size_t d) {
        sum(b, s, h, d) = static_cast<T>(static_cast<C>(sum(b, s, h, d)) + static_cast<C>(x(b, s, h, d)));
      });
}

template <class Exec, Scalar T>
void ContextRanks<Exec, T>::backward(const Exec& exec, const Operands& o, const Gradients& g) {
  gather(exec, o.k, o.v);
  // The second chunk of a rank sees more keys than its first. What comes behind them has no gradient here.
  const Matrix& of_first = m_by_rank;
  Kokkos::deep_copy(exec, m_d_whole, static_cast<T>(C(0)));
  for (const int half : {1, 0}) {
    const TokenRuns keys = keys_of(half, o.options);
    const Matrix& d = half == 1 ? m_d_whole : of_first;
    for_sequences(exec, o, queries_of(half), keys, [&](Range some, const Extras& documents) {
      const auto keys_in = [&](const Matrix& from, int which) {
        return sequences_of(heads_in(from, which, keys.count()), some);
      };
      const AttentionBackwardOperands operands{.q = sequences_of(half_of(o.q, half), some),
                                               .k = keys_in(m_whole, 0),
                                               .v = keys_in(m_whole, 1),
                                               .out = sequences_of(half_of(o.out, half), some),
                                               .lse = sequences_of(half_of(o.lse, half), some),
                                               .dout = sequences_of(half_of(g.dout, half), some),
                                               .dq = sequences_of(half_of(g.dq, half), some),
                                               .dk = keys_in(d, 0),
                                               .dv = keys_in(d, 1)};
      attention_backward(exec, operands, o.options, documents, {}, g.workspace);
    });
  }
  for (const int which : {0, 1}) {
    const std::int64_t keys = keys_of(0, o.options).count();
    add_heads(exec, heads_in(m_d_whole, which, keys), heads_in(of_first, which, keys));
  }
  reorder_tokens(exec, m_slice, m_by_rank, m_d_whole, false);
  m_ranks.reduce_scatter(exec, m_by_rank, m_own, "gradients of keys and values");
  Kokkos::deep_copy(exec, g.dk, heads_in(m_own, 0, 2 * m_slice.chunk));
  Kokkos::deep_copy(exec, g.dv, heads_in(m_own, 1, 2 * m_slice.chunk));
}

}  // namespace kformer::Impl
