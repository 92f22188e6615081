// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/layer_weights.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/parallel/collectives.hpp"

/// \file
/// Embedding and head of a model, whose words may be divided among ranks.

namespace kformer::Impl {

/// Words [begin, end) of `whole`, by `slice_begin`.
struct VocabularySlice {
  std::int64_t whole = 0, begin = 0, end = 0;

  VocabularySlice() = default;
  KOKKOS_FUNCTION VocabularySlice(std::int64_t words, int rank, int ranks)
      : whole(words), begin(slice_begin(words, rank, ranks)), end(slice_begin(words, rank + 1, ranks)) {}
  /// Of the rank that divides a model with others.
  VocabularySlice(std::int64_t words, const std::shared_ptr<Communicator>& tensor)
      : VocabularySlice(words, tensor ? tensor->rank() : 0, tensor ? tensor->size() : 1) {}
  KOKKOS_FUNCTION std::int64_t size() const { return end - begin; }
  /// Whether a word is one of them.
  KOKKOS_FUNCTION bool has(std::int64_t word) const { return begin <= word && word < end; }
};

/// The first and the last operation of a language model. Without other ranks they are `embedding_*`, `linear_forward` and
/// `linear_cross_entropy`. Else each rank has rows of embedding and head, and
///
///  - the embedding of a token is the sum over the ranks, of which one knows it;
///  - of each token and rank r, lse_r and `s_r = Σ_v w_v (lse_r − z_v)` over its words become known to all, where w_v is
///    what the target gives word v: `(1 − ε)·[v = target] + ε/vocabulary` with label smoothing ε. With
///    `lse = log Σ_r e^lse_r` the loss is `Σ_r (s_r + (lse − lse_r) Σ_v w_v)`, so that no rank has the logits of all words;
///  - the gradient of the hidden states is summed over the ranks.
template <class Exec, Scalar T>
class VocabularyRanks {
 public:
  using memory_space = typename Exec::memory_space;
  using C = compute_t<T>;
  using Matrix = BlockMatrix<memory_space, T>;
  using Gradient = BlockMatrix<memory_space, C>;
  using Numbers = StridedVector<memory_space, C>;
  using ConstNumbers = StridedVector<memory_space, const C>;
  using Tokens = StridedVector<memory_space, const std::int32_t>;

  VocabularyRanks() = default;
  /// Books and allocates.
  /// \param vocabulary words
  /// \param rows       tokens of a call, at most
  /// \param ranks      that divide the words, or null
  /// \param hidden     columns of states whose rows the ranks divide, too; 0: each has all rows
  /// \param ledger     the memory is of the class workspace
  VocabularyRanks(std::int64_t vocabulary, std::int64_t rows, Collectives<Exec>* ranks, std::int64_t hidden,
                  Ledger& ledger);

  /// The words of this rank.
  const VocabularySlice& words() const { return m_words; }
  /// The states of all tokens, of those of this rank; until the next call.
  Matrix whole(const Exec& exec, const Matrix& x);
  /// x = the rows of the embedding.
  void embed(const Exec& exec, const Tokens& ids, const Matrix& embedding, const Matrix& x);
  /// The gradient of the embedding, accumulated.
  void embed_backward(const Exec& exec, const Tokens& ids, const Matrix& dx, const Gradient& dembedding);
  /// Logits of all words.
  void logits(const Exec& exec, const Matrix& x, const Matrix& head, const Matrix& logits,
              bool batch_invariant);
  /// The operands of `loss`; `dx` and `dweight` are empty without gradients.
  struct Loss {
    Matrix x, weight;
    Tokens targets;
    ConstNumbers dloss;
    Numbers loss;
    Matrix dx;
    Gradient dweight;
  };
  /// As `linear_cross_entropy`.
  void loss(const Exec& exec, const Loss& operands, const LinearCrossEntropyOptions& options,
            const BlockVector<memory_space, std::byte>& workspace);

 private:
  using Words = BlockVector<memory_space, std::int32_t>;

  // Room for as many.
  Words local_of(const Tokens& tokens) const {
    return Kokkos::subview(m_local, std::pair(std::size_t(0), tokens.extent(0)));
  }
  void divided_loss(const Exec& exec, const Loss& operands, const LinearCrossEntropyOptions& options,
                    const Workspace& workspace);

  VocabularySlice m_words;
  Collectives<Exec>* m_ranks = nullptr;
  Words m_local;                            // (rows): ids or targets, counted from the first word of this rank
  BlockVector<memory_space, C> m_own;       // (2, rows of a chunk): lse_r, s_r
  BlockVector<memory_space, C> m_all;       // (ranks, 2, rows of a chunk)
  BlockVector<memory_space, C> m_standing;  // (rows): the logit of the word that stands for the target
  Matrix m_whole, m_partial;                // (rows, hidden): states of all tokens, and what is to be summed
  MemoryBlock<memory_space> m_block;
};

}  // namespace kformer::Impl
