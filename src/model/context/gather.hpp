// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/impl/context_ranks.hpp"
#include "kformer/ops/attention.hpp"
#include "model/context/operands.hpp"

/// \file
/// Definitions of ContextRanks' members: ranks that gather the keys and values of all tokens.

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

// Of the first tokens of each sequence.
template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Heads ContextRanks<Exec, T>::first_keys(const Matrix& from, int which,
                                                                        std::int64_t tokens) const {
  return Kokkos::subview(pair_in(from, which), Kokkos::ALL, Range(0, static_cast<std::size_t>(tokens)),
                         Kokkos::ALL, Kokkos::ALL);
}

// Leaves keys and values of all tokens in m_whole.
template <class Exec, Scalar T>
void ContextRanks<Exec, T>::gather(const Exec& exec, const Heads& k, const Heads& v) {
  Kokkos::deep_copy(exec, pair_in(m_own, 0), k);
  Kokkos::deep_copy(exec, pair_in(m_own, 1), v);
  m_ranks.all_gather(exec, m_own, m_by_rank, "keys and values");
  reorder_tokens(exec, m_slice, m_by_rank, m_whole, true);
}

template <class Exec, Scalar T>
void ContextRanks<Exec, T>::forward_gathered(const Exec& exec, const Operands& o) {
  gather(exec, o.k, o.v);
  for (const int half : {0, 1}) {
    const Chunks chunk{half, half + 1};
    const TokenRuns keys = keys_of(half, o.options);
    for_sequences(exec, o, runs_of(m_slice.rank, chunk), keys, [&](Range some, const Extras& documents) {
      attention_forward(exec, sequences_of(chunks_of(o.q, chunk), some),
                        sequences_of(first_keys(m_whole, 0, keys.count()), some),
                        sequences_of(first_keys(m_whole, 1, keys.count()), some),
                        sequences_of(chunks_of(o.out, chunk), some),
                        sequences_of(chunks_of(o.lse, chunk), some), o.options, documents);
    });
  }
}

template <class Exec, Scalar T>
void ContextRanks<Exec, T>::backward_gathered(const Exec& exec, const Operands& o, const Gradients& g) {
  gather(exec, o.k, o.v);
  // The second chunk of a rank sees more keys than its first. What comes behind them has no gradient here.
  const Matrix& of_first = m_by_rank;
  Kokkos::deep_copy(exec, m_d_whole, static_cast<T>(C(0)));
  for (const int half : {1, 0}) {
    const Chunks chunk{half, half + 1};
    const TokenRuns keys = keys_of(half, o.options);
    const Matrix& d = half == 1 ? m_d_whole : of_first;
    for_sequences(exec, o, runs_of(m_slice.rank, chunk), keys, [&](Range some, const Extras& documents) {
      const auto keys_in = [&](const Matrix& from, int which) {
        return sequences_of(first_keys(from, which, keys.count()), some);
      };
      const AttentionBackwardOperands operands{.q = sequences_of(chunks_of(o.q, chunk), some),
                                               .k = keys_in(m_whole, 0),
                                               .v = keys_in(m_whole, 1),
                                               .out = sequences_of(chunks_of(o.out, chunk), some),
                                               .lse = sequences_of(chunks_of(o.lse, chunk), some),
                                               .dout = sequences_of(chunks_of(g.dout, chunk), some),
                                               .dq = sequences_of(chunks_of(g.dq, chunk), some),
                                               .dk = keys_in(d, 0),
                                               .dv = keys_in(d, 1)};
      attention_backward(exec, operands, o.options, documents, {}, g.workspace);
    });
  }
  for (const int which : {0, 1}) {
    const std::int64_t keys = keys_of(0, o.options).count();
    add_heads(exec, first_keys(m_d_whole, which, keys), first_keys(of_first, which, keys));
  }
  reorder_tokens(exec, m_slice, m_by_rank, m_d_whole, false);
  m_ranks.reduce_scatter(exec, m_by_rank, m_own, "gradients of keys and values");
  Kokkos::deep_copy(exec, g.dk, pair_in(m_own, 0));
  Kokkos::deep_copy(exec, g.dv, pair_in(m_own, 1));
}

}  // namespace kformer::Impl
