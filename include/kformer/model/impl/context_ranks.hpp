// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kformer/model/impl/context_slice.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/ops/attention_extras.hpp"
#include "kformer/ops/attention_options.hpp"
#include "kformer/parallel/collectives.hpp"

/// \file
/// Attention of sequences whose tokens are divided among ranks.

namespace kformer::Impl {

/// Attention of a layer whose tokens are divided. Each rank gathers the keys and values of all tokens, and has its own
/// queries. In backward each rank has gradients of all keys and values, whose sums over the ranks go to those that have
/// the tokens; they are rounded to T on each rank before.
///
/// Packed documents may lie across ranks. Each sequence then has a call of its own, with the borders of the documents
/// among its queries and keys there.
///
/// With N bytes of keys and values of a rank, and n ranks, each sends (n − 1) N in forward, and 2 (n − 1) N in backward.
template <class Exec, Scalar T>
class ContextRanks {
 public:
  using memory_space = typename Exec::memory_space;
  using C = compute_t<T>;
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  using Heads =
      Kokkos::View<T****, Kokkos::LayoutStride, memory_space, Unmanaged>;  // (batch, seq, heads, head_dim)
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
  /// \param options which ranks divide the tokens, whether there will be a backward, whether documents are packed
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
  using Matrix = BlockMatrix<memory_space, T>;
  using Extras = AttentionExtras<Exec>;
  using Range = std::pair<std::size_t, std::size_t>;

  void gather(const Exec& exec, const Heads& k, const Heads& v);
  Lse half_of(const Lse& all, int half) const;
  TokenRuns queries_of(int half) const { return {{m_slice.first(half), 0}, {m_slice.chunk, 0}}; }
  // Keys that the queries of that chunk may see, from the first of the sequence on.
  TokenRuns keys_of(int half, const AttentionOptions& options) const {
    return {{}, {options.causal ? m_slice.first(half) + m_slice.chunk : m_slice.whole(), 0}};
  }
  // `f(sequences, extras)` of all sequences or, where documents are packed, of each.
  template <class F>
  void for_sequences(const Exec& exec, const Operands& operands, const TokenRuns& queries,
                     const TokenRuns& keys, F f);
  // Keys (0) or values (1) of the first tokens of each sequence, or their gradients.
  Heads heads_in(const Matrix& from, int which, std::int64_t tokens) const;

  ContextSlice m_slice;
  std::int64_t m_batch, m_heads, m_kv_heads, m_head_dim;
  bool m_packed;
  Collectives<Exec> m_ranks;
  Matrix m_own;      // (tokens of this rank, keys and values)
  Matrix m_by_rank;  // (ranks · tokens of a rank, …): those of rank 0, of rank 1, …
  Matrix m_whole;    // (batch · tokens of a sequence, …)
  Matrix m_d_whole;  // gradients of m_whole
  BlockVector<memory_space, std::int32_t> m_query_starts, m_key_starts;  // of documents, in the call that runs
  MemoryBlock<memory_space> m_block;
};

}  // namespace kformer::Impl
