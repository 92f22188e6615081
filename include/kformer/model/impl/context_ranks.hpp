// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "kformer/model/layer_options.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/ops/attention_options.hpp"
#include "kformer/parallel/collectives.hpp"

/// \file
/// Attention of sequences whose tokens are divided among ranks.

namespace kformer::Impl {

/// Which tokens of a sequence a rank has: of 2n chunks, rank r of n has chunks r and 2n − 1 − r, one behind the other. With
/// a causal mask all ranks so have as many keys to look at (Grattafiori et al., The Llama 3 Herd of Models,
/// arXiv:2407.21783, section 3.3.2).
struct ContextSlice {
  std::int64_t chunk = 0;  ///< tokens
  int rank = 0, ranks = 1;

  /// The tokens of all ranks.
  KOKKOS_FUNCTION std::int64_t whole() const { return 2 * ranks * chunk; }
  /// The place in the sequence of the first token of this rank's chunk `half`, 0 or 1.
  std::int64_t first(int half) const { return first_of(rank, half); }
  /// The same of another rank.
  KOKKOS_FUNCTION std::int64_t first_of(int of_rank, int half) const {
    return chunk * (half == 0 ? of_rank : 2 * ranks - 1 - of_rank);
  }
  /// The rank that has a token.
  int owner(std::int64_t token) const {
    const auto number = static_cast<int>(token / chunk);
    return number < ranks ? number : 2 * ranks - 1 - number;
  }
};

/// Attention of a layer whose tokens are divided. Each rank gathers the keys and values of all tokens, and has its own
/// queries. In backward each rank has gradients of all keys and values, whose sums over the ranks go to those that have
/// the tokens; they are rounded to T on each rank before.
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
  using Lse = Kokkos::View<C***, Kokkos::LayoutRight, memory_space, Unmanaged>;  // (batch, heads, seq)

  /// What attention reads and writes, of this rank's tokens.
  struct Operands {
    Heads q, k, v, out;
    Lse lse;  ///< of the first halves of all sequences, then of the second
    AttentionOptions options;
  };
  /// The gradients.
  struct Gradients {
    Heads dout, dq, dk, dv;
    BlockVector<memory_space, std::byte> workspace;
  };

  /// Books and allocates.
  /// \param ranks    that divide the tokens
  /// \param shape    the tokens of this rank; an even number of each sequence
  /// \param kv_heads heads of keys
  /// \param head_dim their length
  /// \param trains   whether there will be a backward
  /// \param ledger   the memory is of the classes workspace and communication
  ContextRanks(std::shared_ptr<Communicator> ranks, LayerShape shape, std::int64_t kv_heads,
               std::int64_t head_dim, bool trains, Ledger& ledger);

  /// The tokens of this rank.
  const ContextSlice& slice() const { return m_slice; }
  /// The operations among the ranks.
  Collectives<Exec>& ranks() { return m_ranks; }
  /// Chunk `half` of each sequence.
  Heads half_of(const Heads& all, int half) const;
  /// Keys that the queries of that chunk may see.
  std::int64_t keys_of(int half, const AttentionOptions& options) const {
    return options.causal ? m_slice.first(half) + m_slice.chunk : m_slice.whole();
  }
  void forward(const Exec& exec, const Operands& operands);
  void backward(const Exec& exec, const Operands& operands, const Gradients& gradients);

 private:
  using Matrix = BlockMatrix<memory_space, T>;

  void gather(const Exec& exec, const Heads& k, const Heads& v);
  Lse lse_of(const Lse& all, int half) const;
  // Keys (0) or values (1) of the first tokens of each sequence, or their gradients.
  Heads heads_in(const Matrix& from, int which, std::int64_t tokens) const;

  ContextSlice m_slice;
  std::int64_t m_batch, m_kv_heads, m_head_dim;
  Collectives<Exec> m_ranks;
  Matrix m_own;      // (tokens of this rank, keys and values)
  Matrix m_by_rank;  // (ranks · tokens of a rank, …): those of rank 0, of rank 1, …
  Matrix m_whole;    // (batch · tokens of a sequence, …)
  Matrix m_d_whole;  // gradients of m_whole
  MemoryBlock<memory_space> m_block;
};

}  // namespace kformer::Impl
