// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kformer/model/impl/context_slice.hpp"
#include "kformer/model/impl/ring_messages.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/ops/attention_extras.hpp"
#include "kformer/ops/attention_options.hpp"
#include "kformer/parallel/collectives.hpp"

/// \file
/// Attention of sequences whose tokens are divided among ranks.

namespace kformer::Impl {

/// Attention of a layer whose tokens are divided: each rank has its own queries, and the keys and values of all tokens
/// reach it in one of two ways.
///
/// `ContextExchange::all_gather`: each rank gathers all of them. In backward it has gradients of all keys and values,
/// whose sums over the ranks go to those that have the tokens; they are rounded to T on each rank before. With N bytes
/// of keys and values of a rank, and n ranks, each sends (n − 1) N in forward, and 2 (n − 1) N in backward.
///
/// `ContextExchange::ring` (Liu et al., arXiv:2310.01889; of zig-zag chunks: Brandon et al., arXiv:2311.09431): keys and
/// values go round in n − 1 shifts, and while those of the next rank are under way, a rank computes attention to those
/// at hand. With a causal mask two of the four pairs of chunks have something to see, whoever has the keys. The outputs
/// o_s of parts are added by their log-sum-exp l_s:
///
///     l = log Σ_s exp(l_s),  o = Σ_s exp(l_s − l) o_s.
///
/// In backward they go round again; their gradients start at the second rank that has them and end at home after n − 1
/// shifts. Each part takes l of the whole rows, so that its weights are exact. Sums are in compute_t<T>: a rank sends
/// (n − 1) N in forward, and (n − 1) (N + N c) in backward, where c are the bytes of compute_t<T> over those of T.
///
/// Packed documents may lie across ranks. Each sequence then has a call of its own, with the borders of the documents
/// among its queries and keys there.
template <class Exec, Scalar T>
class ContextRanks {
 public:
  using memory_space = typename Exec::memory_space;
  using C = compute_t<T>;
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  template <class U>
  using HeadsOf = Kokkos::View<U****, Kokkos::LayoutStride, memory_space, Unmanaged>;
  using Heads = HeadsOf<T>;  // (batch, seq, heads, head_dim)
  using Lse = Kokkos::View<C***, Kokkos::LayoutStride, memory_space, Unmanaged>;  // (batch, heads, seq)
  using Starts = StridedVector<memory_space, const std::int32_t>;

  /// What attention reads and writes, of this rank's tokens.
  struct Operands {
    Heads q, k, v, out;
    Lse lse;
    AttentionOptions options;
    Starts starts{};  ///< of packed documents, in the whole sequences
  };
  /// The gradients.
  struct Gradients {
    Heads dout, dq, dk, dv;
    BlockVector<memory_space, std::byte> workspace;
  };

  /// Books and allocates.
  /// \param config  the heads of this rank
  /// \param shape   the tokens of this rank; an even number of each sequence
  /// \param options which ranks divide the tokens and how, whether there will be a backward, whether documents are packed
  /// \param ledger  the memory is of the classes workspace and communication
  ContextRanks(const LlamaConfig& config, LayerShape shape, const LayerOptions& options, Ledger& ledger);

  /// The tokens of this rank.
  const ContextSlice& slice() const { return m_slice; }
  /// The operations among the ranks.
  Collectives<Exec>& ranks() { return m_ranks; }
  /// Chunk `half` of each sequence.
  Heads half_of(const Heads& all, int half) const;
  /// Bytes of `Gradients::workspace`.
  std::size_t workspace_bytes(const AttentionOptions& options) const;
  void forward(const Exec& exec, const Operands& operands);
  void backward(const Exec& exec, const Operands& operands, const Gradients& gradients);

 private:
  template <class U>
  using MatrixOf = BlockMatrix<memory_space, U>;
  using Matrix = MatrixOf<T>;
  using Sums = MatrixOf<C>;
  using Extras = AttentionExtras<Exec>;
  using Range = std::pair<std::size_t, std::size_t>;

  // Some of the two chunks of a rank.
  struct Chunks {
    int begin = 0, end = 2;
  };
  // Queries of this rank, and the keys they look at among those of one rank.
  struct Part {
    Chunks queries, keys;
    bool causal;
  };

  template <class V>
  V chunks_of(const V& all, Chunks chunks) const;
  TokenRuns runs_of(int rank, Chunks chunks) const;
  // Keys that the queries of a chunk may see, from the first of the sequence on.
  TokenRuns keys_of(int half, const AttentionOptions& options) const {
    return {{}, {options.causal ? m_slice.first(half) + m_slice.chunk : m_slice.whole(), 0}};
  }
  // `f(sequences, extras)` of all sequences or, where documents are packed, of each.
  template <class F>
  void for_sequences(const Exec& exec, const Operands& operands, const TokenRuns& queries,
                     const TokenRuns& keys, F f);
  // Keys (0) or values (1), or their gradients.
  template <class U>
  HeadsOf<U> pair_in(const MatrixOf<U>& from, int which) const;
  template <class U>
  HeadsOf<U> queries_in(const MatrixOf<U>& from) const;

  // The way of all_gather.
  void gather(const Exec& exec, const Heads& k, const Heads& v);
  Heads first_keys(const Matrix& from, int which, std::int64_t tokens) const;
  void forward_gathered(const Exec& exec, const Operands& operands);
  void backward_gathered(const Exec& exec, const Operands& operands, const Gradients& gradients);

  // The way of the ring.
  int owner_in(int step) const { return (m_slice.rank + m_slice.ranks - step) % m_slice.ranks; }
  Part part_of(int rank, bool causal) const;
  std::vector<RingArray> keys_in(int step) const;
  void begin_ring(const Exec& exec, const Operands& operands);
  void forward_in_ring(const Exec& exec, const Operands& operands);
  void backward_in_ring(const Exec& exec, const Operands& operands, const Gradients& gradients);
  void forward_part(const Exec& exec, const Operands& operands, int step, const Heads& out, const Lse& lse);
  void backward_part(const Exec& exec, const Operands& operands, const Gradients& gradients, int step);

  ContextSlice m_slice;
  ContextExchange m_exchange;
  std::int64_t m_batch, m_heads, m_kv_heads, m_head_dim;
  bool m_packed;
  Collectives<Exec> m_ranks;
  std::optional<RingMessages<Exec>> m_messages;
  BlockVector<memory_space, std::int32_t> m_query_starts, m_key_starts;  // of documents, in the call that runs
  // Gathered: keys beside values of this rank; of rank 0, of rank 1, …; of whole sequences; their gradients.
  Matrix m_own, m_by_rank, m_whole, m_d_whole;
  // In the ring: keys beside values at hand and under way, and in backward their gradients and what a part adds to them.
  Matrix m_pair[2], m_d_pair;
  Sums m_d_sum[2];
  // What a part returns, out or dq, and the sum over parts.
  Matrix m_part;
  Sums m_sum;
  Lse m_part_lse;
  MemoryBlock<memory_space> m_block;
};

}  // namespace kformer::Impl
