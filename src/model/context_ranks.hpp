// SPDX-License-Identifier: MIT
#pragma once

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
        const std::int64_t row = i / width, column = i % width, local = row % own;
        const std::int64_t sequence = local / (2 * slice.chunk), place = local % (2 * slice.chunk);
        const std::int64_t token =
            sequence * slice.whole() +
            slice.first_of(static_cast<int>(row / own), static_cast<int>(place / slice.chunk)) +
            place % slice.chunk;
        if (to_tokens)
          by_token(token, column) = by_rank(row, column);
        else
          by_rank(row, column) = by_token(token, column);
      });
}

template <class Exec, Scalar T>
ContextRanks<Exec, T>::ContextRanks(std::shared_ptr<Communicator> ranks, LayerShape shape,
                                    std::int64_t kv_heads, std::int64_t head_dim, bool trains, Ledger& ledger)
    : m_slice{shape.seq_len / 2, ranks->rank(), ranks->size()},
      m_batch(shape.batch),
      m_kv_heads(kv_heads),
      m_head_dim(head_dim),
      m_ranks(std::move(ranks), {}, ledger) {
  const std::int64_t own = shape.rows(), all = own * m_slice.ranks, width = 2 * kv_heads * head_dim;
  Arena<memory_space> arena;
  arena.add(m_own, own, width);
  arena.add(m_by_rank, all, width);
  arena.add(m_whole, all, width);
  if (trains) arena.add(m_d_whole, all, width);
  m_block = arena.allocate(ledger, MemoryClass::workspace, "DecoderLayer::context");
}

template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Heads ContextRanks<Exec, T>::half_of(const Heads& all, int half) const {
  const auto begin = static_cast<std::size_t>(half * m_slice.chunk);
  return Kokkos::subview(all, Kokkos::ALL, std::pair(begin, begin + static_cast<std::size_t>(m_slice.chunk)),
                         Kokkos::ALL, Kokkos::ALL);
}

template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Lse ContextRanks<Exec, T>::lse_of(const Lse& all, int half) const {
  const std::size_t heads = all.extent(1), chunk = static_cast<std::size_t>(m_slice.chunk);
  const std::size_t before = static_cast<std::size_t>(half) * all.extent(0) * heads * chunk;
  return Lse(all.data() ? all.data() + before : nullptr, all.extent(0), heads, chunk);
}

template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Heads ContextRanks<Exec, T>::heads_in(const Matrix& from, int which,
                                                                      std::int64_t tokens) const {
  const Heads all = heads_of_sequences(from, m_batch, which * m_kv_heads, m_kv_heads, m_head_dim);
  return Kokkos::subview(all, Kokkos::ALL, std::pair(std::size_t(0), static_cast<std::size_t>(tokens)),
                         Kokkos::ALL, Kokkos::ALL);
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
    const std::int64_t keys = keys_of(half, o.options);
    attention_forward(exec, half_of(o.q, half), heads_in(m_whole, 0, keys), heads_in(m_whole, 1, keys),
                      half_of(o.out, half), lse_of(o.lse, half), o.options);
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
    const std::int64_t keys = keys_of(half, o.options);
    const Matrix& d = half == 1 ? m_d_whole : of_first;
    const AttentionBackwardOperands operands{.q = half_of(o.q, half),
                                             .k = heads_in(m_whole, 0, keys),
                                             .v = heads_in(m_whole, 1, keys),
                                             .out = half_of(o.out, half),
                                             .lse = lse_of(o.lse, half),
                                             .dout = half_of(g.dout, half),
                                             .dq = half_of(g.dq, half),
                                             .dk = heads_in(d, 0, keys),
                                             .dv = heads_in(d, 1, keys)};
    attention_backward(exec, operands, o.options, {}, {}, g.workspace);
  }
  for (const int which : {0, 1}) {
    const std::int64_t keys = keys_of(0, o.options);
    add_heads(exec, heads_in(m_d_whole, which, keys), heads_in(of_first, which, keys));
  }
  reorder_tokens(exec, m_slice, m_by_rank, m_d_whole, false);
  m_ranks.reduce_scatter(exec, m_by_rank, m_own, "gradients of keys and values");
  Kokkos::deep_copy(exec, g.dk, heads_in(m_own, 0, 2 * m_slice.chunk));
  Kokkos::deep_copy(exec, g.dv, heads_in(m_own, 1, 2 * m_slice.chunk));
}

}  // namespace kformer::Impl
