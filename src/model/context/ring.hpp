// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "kformer/model/impl/context_ranks.hpp"
#include "kformer/ops/attention.hpp"
#include "model/context/operands.hpp"

/// \file
/// Definitions of ContextRanks' members: ranks in a ring, among which keys and values go round.

namespace kformer::Impl {

// With a causal mask a rank in front has a first chunk that all queries see whole and a second one that none sees, and of
// the keys of a rank behind the second chunk of queries sees all and the first none.
template <class Exec, Scalar T>
typename ContextRanks<Exec, T>::Part ContextRanks<Exec, T>::part_of(int rank, bool causal) const {
  constexpr Chunks first{0, 1}, second{1, 2}, both{};
  if (!causal || rank == m_slice.rank) return {both, both, causal};
  if (rank < m_slice.rank) return {both, first, false};
  return {second, both, false};
}

// The messages of step `step`, which all ranks but the last get: keys and values of the step, and those of the next.
template <class Exec, Scalar T>
std::vector<RingArray> ContextRanks<Exec, T>::keys_in(int step) const {
  if (step + 1 >= m_slice.ranks) return {};
  const Matrix &now = m_pair[step % 2], &next = m_pair[(step + 1) % 2];
  return {{"keys and values", now.data(), next.data(), now.size() * sizeof(T)}};
}

// The keys and values of this rank are those of step 0.
template <class Exec, Scalar T>
void ContextRanks<Exec, T>::begin_ring(const Exec& exec, const Operands& o) {
  Kokkos::deep_copy(exec, pair_in(m_pair[0], 0), o.k);
  Kokkos::deep_copy(exec, pair_in(m_pair[0], 1), o.v);
  m_messages->begin(exec, keys_in(0));
}

template <class Exec, Scalar T>
void ContextRanks<Exec, T>::forward_part(const Exec& exec, const Operands& o, int step, const Heads& out,
                                         const Lse& lse) {
  const int rank = owner_in(step);
  const Part part = part_of(rank, o.options.causal);
  AttentionOptions options = o.options;
  options.causal = part.causal;
  const Matrix& pair = m_pair[step % 2];
  for_sequences(exec, o, runs_of(m_slice.rank, part.queries), runs_of(rank, part.keys),
                [&](Range some, const Extras& documents) {
                  attention_forward(exec, sequences_of(chunks_of(o.q, part.queries), some),
                                    sequences_of(chunks_of(pair_in(pair, 0), part.keys), some),
                                    sequences_of(chunks_of(pair_in(pair, 1), part.keys), some),
                                    sequences_of(chunks_of(out, part.queries), some),
                                    sequences_of(chunks_of(lse, part.queries), some), options, documents);
                });
}

template <class Exec, Scalar T>
void ContextRanks<Exec, T>::forward_in_ring(const Exec& exec, const Operands& o) {
  const Heads out = queries_in(m_part);
  const auto sum = queries_in(m_sum);
  begin_ring(exec, o);
  forward_part(exec, o, 0, o.out, o.lse);
  convert_heads(exec, sum, o.out);
  m_messages->finish(exec);
  for (int step = 1; step < m_slice.ranks; ++step) {
    const auto messages = keys_in(step);
    if (!messages.empty()) m_messages->begin(exec, messages);
    forward_part(exec, o, step, out, m_part_lse);
    const Chunks queries = part_of(owner_in(step), o.options.causal).queries;
    const Lse share = chunks_of(m_part_lse, queries);
    merge_lse(exec, chunks_of(o.lse, queries), share);
    merge_heads(exec, chunks_of(sum, queries), chunks_of(out, queries), share);
    if (!messages.empty()) m_messages->finish(exec);
  }
  convert_heads(exec, o.out, sum);
}

// The gradients of queries, keys and values that a part has are in m_part and m_d_pair; of the part at home in those of
// the layer.
template <class Exec, Scalar T>
void ContextRanks<Exec, T>::backward_part(const Exec& exec, const Operands& o, const Gradients& g, int step) {
  const int rank = owner_in(step);
  const Part part = part_of(rank, o.options.causal);
  AttentionOptions options = o.options;
  options.causal = part.causal;
  const Matrix& pair = m_pair[step % 2];
  const bool home = step == 0;
  const Heads dq = home ? g.dq : queries_in(m_part), dk = home ? g.dk : pair_in(m_d_pair, 0),
              dv = home ? g.dv : pair_in(m_d_pair, 1);
  for_sequences(
      exec, o, runs_of(m_slice.rank, part.queries), runs_of(rank, part.keys),
      [&](Range some, const Extras& documents) {
        const auto queries = [&](const auto& all) { return sequences_of(chunks_of(all, part.queries), some); };
        const auto keys = [&](const auto& all) { return sequences_of(chunks_of(all, part.keys), some); };
        const AttentionBackwardOperands operands{.q = queries(o.q),
                                                 .k = keys(pair_in(pair, 0)),
                                                 .v = keys(pair_in(pair, 1)),
                                                 .out = queries(o.out),
                                                 .lse = queries(o.lse),
                                                 .dout = queries(g.dout),
                                                 .dq = queries(dq),
                                                 .dk = keys(dk),
                                                 .dv = keys(dv)};
        attention_backward(exec, operands, options, documents, {}, g.workspace);
      });
}

// What has been summed in step t − 1, of the keys and values that were here then, travels to the next rank in step t. So
// the sums begin in step 1, at the first rank that has keys of another, and come home in step n.
template <class Exec, Scalar T>
void ContextRanks<Exec, T>::backward_in_ring(const Exec& exec, const Operands& o, const Gradients& g) {
  const auto sum = queries_in(m_sum);
  const int ranks = m_slice.ranks;
  begin_ring(exec, o);
  backward_part(exec, o, g, 0);
  convert_heads(exec, sum, g.dq);
  m_messages->finish(exec);
  Kokkos::deep_copy(exec, m_d_sum[1], C(0));
  for (int step = 1; step <= ranks; ++step) {
    const Sums &before = m_d_sum[(step + 1) % 2], &now = m_d_sum[step % 2];
    auto messages = keys_in(step);
    if (step > 1)
      messages.push_back({"gradients of keys and values", before.data(), now.data(), now.size() * sizeof(C)});
    if (!messages.empty()) m_messages->begin(exec, messages);
    if (step < ranks) backward_part(exec, o, g, step);
    if (!messages.empty()) m_messages->finish(exec);
    if (step == ranks) break;
    const Part part = part_of(owner_in(step), o.options.causal);
    add_heads(exec, chunks_of(sum, part.queries), chunks_of(queries_in(m_part), part.queries));
    for (const int which : {0, 1})
      add_heads(exec, chunks_of(pair_in(now, which), part.keys),
                chunks_of(pair_in(m_d_pair, which), part.keys));
  }
  const Sums& home = m_d_sum[ranks % 2];
  add_heads(exec, g.dk, pair_in(home, 0));
  add_heads(exec, g.dv, pair_in(home, 1));
  convert_heads(exec, g.dq, sum);
}

}  // namespace kformer::Impl
