// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kformer/model/decoder_layer.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"

/// \file
/// The language model of the Llama family on whole sequences, forward and backward: training, and the oracle of
/// generation, which is `LlamaDecoder`.

namespace kformer {

/// A causal language model (Touvron et al., arXiv:2302.13971):
///
///     x_0 = embedding[ids],  x_{l+1} = layer_l(x_l),  hidden = rms_norm(x_L),  logits = hidden · W_headᵀ,
///
/// with `W_head` the embedding itself where `tie_word_embeddings` says so.
///
/// The model owns weights, gradients, saved activations and workspace, all booked in a ledger, and allocates
/// only in its constructor. The logits of all tokens never exist together unless they are asked for.
template <class Exec, Scalar T>
class LlamaModel {
 public:
  /// The model's memory space.
  using memory_space = typename Exec::memory_space;
  /// The type of arithmetic, losses and gradients of parameters.
  using C = compute_t<T>;

  /// Books and allocates everything; weights and gradients are undefined until they are written.
  /// \param config    the model's extents
  /// \param shape     the tokens it will work on
  /// \param algorithm how attention is computed
  /// \param mode      whether there will be a backward
  /// \param ledger    where the memory is booked
  /// \param compute   as of `DecoderLayer`
  /// \throws DimensionMismatch if the configuration is invalid
  /// \throws OutOfMemory with the ledger
  LlamaModel(const LlamaConfig& config, LayerShape shape, AttentionAlgorithm algorithm, LayerMode mode,
             Ledger& ledger, Compute compute = Compute::storage);

  /// Fills the rotary tables; call once before `forward`.
  void prepare(const Exec& exec) const { m_layers.front().prepare(exec); }

  /// The weights, and in training their gradients, by published name: "model.embed_tokens.weight",
  /// "model.layers.0.self_attn.q_proj.weight", …, "model.norm.weight", and "lm_head.weight" unless it is the
  /// embedding.
  std::vector<Parameter> parameters() const;

  /// Sets every gradient to zero (training only).
  void zero_gradients(const Exec& exec) const;

  /// The normalised hidden states of every token. In training, saves what `backward` needs.
  /// \param exec the instance everything is launched on; nothing is fenced or allocated
  /// \param ids  (batch · seq), int32; a token outside the vocabulary makes its sequence NaN
  /// \throws DimensionMismatch if extents do not fit
  template <ViewOf<1> I>
  void forward(const Exec& exec, const I& ids) const;

  /// Scores of every token for every word, of the last `forward`.
  /// \param exec   the instance
  /// \param logits (batch · seq, vocab_size), T, overwritten
  /// \throws DimensionMismatch if extents do not fit
  template <ViewOf<2> L>
  void logits(const Exec& exec, const L& logits) const {
    linear_forward(exec, m_hidden, head(), logits);
  }

  /// The cross-entropy of every token, of the last `forward`.
  /// \param exec    the instance
  /// \param targets (batch · seq), int32, the word that comes next; a target outside the vocabulary counts as
  /// 0
  /// \param loss    (batch · seq), compute_t<T>, overwritten, in nats
  /// \throws DimensionMismatch if extents do not fit
  template <ViewOf<1> I, ViewOf<1> O>
  void loss(const Exec& exec, const I& targets, const O& loss) const {
    linear_cross_entropy(exec, m_hidden, head(), targets, loss, {}, m_loss_workspace);
  }

  /// Gradients of `Σ dloss · loss`, after `forward` of the same tokens; parameter gradients are accumulated.
  /// Once per `forward`: it works in the arrays that forward left.
  /// \param exec    the instance
  /// \param ids     (batch · seq), int32, as passed to `forward`
  /// \param targets (batch · seq), int32
  /// \param dloss   (batch · seq), compute_t<T>; 1/n for the mean over n tokens, times a loss scale
  /// \param loss    (batch · seq), compute_t<T>, overwritten, in nats
  /// \throws NotSupported in inference
  /// \throws DimensionMismatch if extents do not fit
  template <ViewOf<1> I, ViewOf<1> J, ViewOf<1> D, ViewOf<1> O>
  void backward(const Exec& exec, const I& ids, const J& targets, const D& dloss, const O& loss) const;

  /// The extents.
  const LlamaConfig& config() const { return m_config; }

 private:
  using Matrix = BlockMatrix<memory_space, T>;

  // Embedding, last norm and, unless tied, the head.
  template <class U>
  struct Ends {
    BlockMatrix<memory_space, U> embedding, head;
    BlockVector<memory_space, U> norm;
    MemoryBlock<memory_space> block;
  };
  template <class U>
  void place_ends(Ledger& ledger, MemoryClass memory_class, Ends<U>& ends) const;
  void place_activations(Ledger& ledger);
  const Matrix& head() const { return m_config.tie_word_embeddings ? m_weight.embedding : m_weight.head; }
  const BlockMatrix<memory_space, C>& head_gradient() const {
    return m_config.tie_word_embeddings ? m_gradient.embedding : m_gradient.head;
  }

  LlamaConfig m_config;
  LayerShape m_shape;
  LayerMode m_mode;
  std::deque<DecoderLayer<Exec, T>> m_layers;  // which hold on to each other's memory and must not move
  Ends<T> m_weight;
  Ends<C> m_gradient;
  MemoryBlock<memory_space> m_block, m_workspace_block;
  std::vector<Matrix> m_x;  // before each layer and behind the last; in inference two that take turns
  Matrix m_hidden, m_dx, m_dy;
  BlockVector<memory_space, C> m_rstd;
  BlockVector<memory_space, std::byte> m_loss_workspace, m_norm_workspace;
};

}  // namespace kformer

#include "kformer/model/llama_model_impl.hpp"
