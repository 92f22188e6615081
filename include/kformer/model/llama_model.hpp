// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kformer/core/move_guard.hpp"
#include "kformer/memory/checkpointed.hpp"
#include "kformer/memory/offloaded_states.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/model/impl/vocabulary_ranks.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"

/// \file
/// The language model of the Llama family on whole sequences, forward and backward: training, and the oracle of
/// generation, which is `LlamaDecoder`.

namespace kformer {

template <class Exec, Scalar T>
class LlamaDecoder;

/// A causal language model (Touvron et al., arXiv:2302.13971):
///
///     x_0 = embedding[ids],  x_{l+1} = layer_l(x_l),  hidden = rms_norm(x_L),  logits = hidden · W_headᵀ,
///
/// with `W_head` the embedding itself if `tie_word_embeddings` is set.
///
/// The model owns weights, gradients, saved activations and workspace, all booked in a ledger. It allocates
/// only in its constructor. The logits of all tokens never exist at once unless requested.
///
/// A step of training is
///
///     model.zero_gradients(exec);
///     model.forward(exec, ids);
///     model.backward(exec, ids, targets, dloss, loss);
///
/// With adapters (`LayerOptions::lora`) the projections that `LayerOptions::formats` names, such as
/// "model.layers.0.self_attn.q_proj.weight", stay quantised. Embedding, head and norms are dense.
///
/// A `RecomputeSchedule` says what forward keeps for backward. Every schedule gives the same bits.
///
/// With `LayerOptions::tensor` ranks divide layers, as `DecoderLayer` says, and the rows of embedding and head. All make
/// the same calls with the same arguments, and get the same losses, logits and gradients of x.
///
/// The members are compiled into the library, for every execution space of Kokkos and every storage type.
template <class Exec, Scalar T>
class LlamaModel {
 public:
  /// The model's memory space.
  using memory_space = typename Exec::memory_space;
  /// The type of arithmetic, losses and gradients of parameters.
  using C = compute_t<T>;
  /// A (rows, columns) array that the model writes.
  using Matrix = BlockMatrix<memory_space, T>;
  /// A (rows, columns) array that the model reads.
  using ConstMatrix = BlockMatrix<memory_space, const T>;
  /// A number for each token, written by the model.
  using TokenNumbers = StridedVector<memory_space, C>;
  /// A number for each token, read by the model.
  using ConstTokenNumbers = StridedVector<memory_space, const C>;
  /// Tokens.
  using Tokens = StridedVector<memory_space, const std::int32_t>;

  /// Books and allocates everything. Weights are undefined until they are written. All layers recompute what
  /// `options.recompute` says, which may here also be `nested` (with ⌈√layers⌉ kept inputs) or `offload`.
  /// \param config  the model's extents
  /// \param shape   the tokens it will work on
  /// \param options how attention is computed, whether there will be a backward, …
  /// \param ledger  where the memory is booked
  /// \throws DimensionMismatch if the configuration is invalid
  /// \throws NotSupported if options cannot be combined
  /// \throws OutOfMemory with the ledger
  LlamaModel(const LlamaConfig& config, LayerShape shape, const LayerOptions& options, Ledger& ledger);

  /// The same with a schedule, which decides instead of `options.recompute`. The schedule is the last argument
  /// because it belongs to the model, not to a layer. A `Trainer` has it in its options.
  /// \param config   the model's extents
  /// \param shape    the tokens it will work on
  /// \param options  how attention is computed, whether there will be a backward, …
  /// \param ledger   where the memory is booked
  /// \param schedule what each layer keeps for backward; for as many layers as the model, or this part, has
  /// \param part     the layers it has, for a stage of a pipeline; see `forward_embedded`, `states`, `backward_states`
  /// \throws DimensionMismatch if the configuration is invalid, the schedule is for another number of layers, or the model
  ///                           has no such layers
  /// \throws NotSupported if options cannot be combined
  /// \throws OutOfMemory with the ledger
  LlamaModel(const LlamaConfig& config, LayerShape shape, const LayerOptions& options, Ledger& ledger,
             const RecomputeSchedule& schedule, ModelPart part = {});

  /// Fills the rotary tables, and in training sets every gradient to zero. Call it once before `forward`.
  void prepare(const Exec& exec);

  /// The weights, and in training their gradients, by published name: "model.embed_tokens.weight",
  /// "model.layers.0.self_attn.q_proj.weight", …, "model.norm.weight", and "lm_head.weight" unless it is the
  /// embedding.
  /// Weights of a model with adapters have no gradients. Those that stay quantised are not among them.
  std::vector<Parameter> parameters() const;

  /// All weights as loading sees them, by published name.
  std::vector<WeightSlot> weights() const;

  /// The adapters of all layers (`LayerOptions::lora`), and in training their gradients:
  /// "model.layers.0.self_attn.q_proj.lora_A.weight", …
  std::vector<Parameter> adapters() const;

  /// Adds `s B A` of every adapter to its weight, rounded once, and sets B to 0: the model computes the same but for
  /// that rounding. With magnitudes the weight becomes `m/n ⊙ (W + s B A)`, and m the norms of its rows. Without effect
  /// if there are no adapters.
  /// \throws NotSupported if a weight stays quantised
  void merge_adapters(const Exec& exec);

  /// Sets magnitudes (`LoraConfig::magnitudes`) to the norms of the rows of W + s B A, so that they change nothing: where
  /// training starts. Without effect if there are none.
  void reset_magnitudes(const Exec& exec);

  /// Switches the adapters of all layers on or off: `AdapterUse`. Off, the model computes as one without adapters does,
  /// to the bit, and has no backward. A change forgets the last forward. Without effect if there are no adapters.
  void use_adapters(AdapterUse use);

  /// Turns dropout of the adapters (`LoraConfig::dropout`) on or off, for each forward that follows and its backward. A
  /// model starts without. A `Trainer` has it in its steps, not in evaluation.
  /// \param draw which random numbers; none: nothing is lost
  /// \throws NotSupported in inference, if there is a draw
  void set_dropout(const std::optional<DropoutDraw>& draw);

  /// What a training changes: the adapters if there are any, else all weights.
  std::vector<Parameter> trained() const { return adapts() ? adapters() : parameters(); }

  /// The parts of `trained()` whose gradients a backward completes one after another, in this order: the last norm and,
  /// unless it is the embedding, the head; the layers from the last to the first; the embedding. Adapters have the
  /// layers alone.
  std::vector<ParameterGroup> gradient_groups() const;

  /// Called by each `backward` that follows as soon as the kernels are launched that complete the gradients of a group.
  /// With `LayerOptions::gradient_turns` = k what it launches is the last that can read those of a layer before the
  /// k-th layer in front of it writes its own there, and those of the head before the embedding does.
  /// \param ready gets the instance and the number of the group in `gradient_groups`; empty: nothing is called.
  ///              `backward_embedded` leaves the embedding out. With `split_backward` those of layers are complete after
  ///              `backward_weights`. With `gradient_turns` a part adds up that of an embedding which another part has,
  ///              too, from `zero_gradients` on: what is complete is the sum so far
  void on_gradients(std::function<void(const Exec&, std::size_t)> ready);

  /// Sets every gradient to zero, between one step of training and the next. Without effect in inference, and
  /// without `LayerOptions::accumulate`.
  void zero_gradients(const Exec& exec);

  /// Computes the normalised hidden states of every token. In training, saves what `backward` needs.
  /// \param exec   the instance everything is launched on; nothing is fenced or allocated
  /// \param ids    (batch · seq), int32; a token outside the vocabulary makes its sequence NaN
  /// \param packed the documents in ids, if `LayerOptions::packed` is set; in training, their memory is read
  ///               again by `backward`
  /// \throws NotSupported if `prepare` was not called
  /// \throws DimensionMismatch if extents do not match
  void forward(const Exec& exec, const Tokens& ids, const PackedTokens<memory_space>& packed = {});

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void forward(const Exec&, const Impl::Passed<Impl::Role::ids, Tokens>&,
               const PackedTokens<memory_space>& = {}) {}

  /// The same with hidden states of the caller's own in place of those that enter the first layer: embeddings of an image,
  /// or what the part in front has computed.
  /// \param exec   the instance
  /// \param x      (batch · seq, hidden), T; copied
  /// \param packed as of `forward`
  /// \throws NotSupported if `prepare` was not called
  /// \throws DimensionMismatch if extents do not match
  void forward_embedded(const Exec& exec, const ConstMatrix& x, const PackedTokens<memory_space>& packed = {});

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void forward_embedded(const Exec&, const Impl::Passed<Impl::Role::x, ConstMatrix>&,
                        const PackedTokens<memory_space>& = {}) {}

  /// What a part without the head has computed: the input of the next part, (batch · seq, hidden), of the last forward.
  /// \throws NotSupported if there was no forward, or the part has the head
  const Matrix& states() const;

  /// Scores of every token for every word, of the last forward.
  /// \param exec   the instance
  /// \param logits (batch · seq, vocab_size), T, overwritten
  /// \throws NotSupported if there was no forward
  /// \throws DimensionMismatch if extents do not match
  void logits(const Exec& exec, const Matrix& logits);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void logits(const Exec&, const Impl::Passed<Impl::Role::logits, Matrix>&) {}

  /// The same of one token.
  /// \param exec   the instance
  /// \param token  0 … batch · seq − 1
  /// \param logits (1, vocab_size), T, overwritten
  /// \throws NotSupported if there was no forward
  /// \throws DimensionMismatch if the token is out of range, or extents do not match
  void logits(const Exec& exec, std::int64_t token, const Matrix& logits);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void logits(const Exec&, std::int64_t, const Impl::Passed<Impl::Role::logits, Matrix>&) {}

  /// The cross-entropy of every token, of the last forward.
  /// \param exec    the instance
  /// \param targets (batch · seq), int32, the word that comes next. `options.ignore_index`, −100, has loss 0;
  ///                any other target outside the vocabulary has loss NaN.
  /// \param loss    (batch · seq), compute_t<T>, overwritten, in nats
  /// \param options label smoothing, z-loss, …
  /// \throws NotSupported if there was no forward, or an option is out of range
  /// \throws DimensionMismatch if extents do not match
  void loss(const Exec& exec, const Tokens& targets, const TokenNumbers& loss,
            const CrossEntropyOptions& options = {});

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void loss(const Exec&, const Impl::Passed<Impl::Role::targets, Tokens>&,
            const Impl::Passed<Impl::Role::loss, TokenNumbers>&, const CrossEntropyOptions& = {}) {}

  /// Gradients of `Σ dloss · loss`, after `forward` of the same tokens; parameter gradients are accumulated, or
  /// overwritten without `LayerOptions::accumulate`: then they last until the next `forward`.
  /// Once per `forward`; the hidden states that `logits` and `loss` read are gone afterwards.
  /// \param exec    the instance
  /// \param ids     (batch · seq), int32, as passed to `forward`
  /// \param targets (batch · seq), int32, as of `loss`
  /// \param dloss   (batch · seq), compute_t<T>; 1/n for the mean over n tokens, times a loss scale
  /// \param loss    (batch · seq), compute_t<T>, overwritten, in nats
  /// \param options label smoothing, z-loss, …
  /// \throws NotSupported in inference, with adapters that are switched off, if the last call was not `forward` but
  ///                      another `backward` or `forward_embedded`, or if an option is out of range
  /// \throws DimensionMismatch if extents do not match
  void backward(const Exec& exec, const Tokens& ids, const Tokens& targets, const ConstTokenNumbers& dloss,
                const TokenNumbers& loss, const CrossEntropyOptions& options = {});

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward(const Exec&, const Impl::Passed<Impl::Role::ids, Tokens>&,
                const Impl::Passed<Impl::Role::targets, Tokens>&,
                const Impl::Passed<Impl::Role::dloss, ConstTokenNumbers>&,
                const Impl::Passed<Impl::Role::loss, TokenNumbers>&, const CrossEntropyOptions& = {}) {}

  /// The same after `forward_embedded`: the gradient of x in place of that of the embedding.
  /// \param exec    the instance
  /// \param targets (batch · seq), int32, as of `loss`
  /// \param dloss   (batch · seq), compute_t<T>
  /// \param loss    (batch · seq), compute_t<T>, overwritten, in nats
  /// \param dx      (batch · seq, hidden), T, overwritten
  /// \param options label smoothing, z-loss, …
  /// \throws NotSupported in inference, with adapters that are switched off, if the last call was not
  ///                      `forward_embedded`, or if an option is out of range
  /// \throws DimensionMismatch if extents do not match
  void backward_embedded(const Exec& exec, const Tokens& targets, const ConstTokenNumbers& dloss,
                         const TokenNumbers& loss, const Matrix& dx, const CrossEntropyOptions& options = {});

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward_embedded(const Exec&, const Impl::Passed<Impl::Role::targets, Tokens>&,
                         const Impl::Passed<Impl::Role::dloss, ConstTokenNumbers>&,
                         const Impl::Passed<Impl::Role::loss, TokenNumbers>&,
                         const Impl::Passed<Impl::Role::dx, Matrix>&, const CrossEntropyOptions& = {}) {}

  /// Of a part without the head: the gradients after `forward`, from that of `states`.
  /// \param exec the instance
  /// \param ids  (batch · seq), int32, as passed to `forward`
  /// \param dy   (batch · seq, hidden), T, of `states`
  /// \throws NotSupported in inference, with adapters that are switched off, if the last call was not `forward`, or if the
  ///                      part has the head
  /// \throws DimensionMismatch if extents do not match
  void backward_states(const Exec& exec, const Tokens& ids, const ConstMatrix& dy);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward_states(const Exec&, const Impl::Passed<Impl::Role::ids, Tokens>&,
                       const Impl::Passed<Impl::Role::dy, ConstMatrix>&) {}

  /// The same after `forward_embedded`: the gradient of x in place of that of the embedding.
  /// \param exec the instance
  /// \param dy   (batch · seq, hidden), T, of `states`
  /// \param dx   (batch · seq, hidden), T, overwritten
  /// \throws NotSupported in inference, with adapters that are switched off, if the last call was not
  ///                      `forward_embedded`, or if the part has the head
  /// \throws DimensionMismatch if extents do not match
  void backward_states_embedded(const Exec& exec, const ConstMatrix& dy, const Matrix& dx);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward_states_embedded(const Exec&, const Impl::Passed<Impl::Role::dy, ConstMatrix>&,
                                const Impl::Passed<Impl::Role::dx, Matrix>&) {}

  /// The gradients of the layers' weights or adapters, after any of the above, with `LayerOptions::split_backward`. Dropout
  /// must be as in the backward.
  /// \param exec the instance
  /// \throws NotSupported without `split_backward`, or if there was no backward
  void backward_weights(const Exec& exec);

  /// Chooses which micro-batch the calls that follow work on: each slot has what one forward saved. A model starts with
  /// slot 0.
  /// \param slot 0 … `LayerOptions::slots` − 1
  /// \throws NotSupported if there is no such slot
  void use_slot(std::int64_t slot);

  /// As `DecoderLayer::has_room_for`, of all layers and of the model.
  bool has_room_for(std::int64_t seq_len);

  /// Takes sequences of another length from now on, in the memory of the constructor: operands have batch · seq_len rows of
  /// this length. Forgets what was saved, in all slots. Without effect if the length is what it was.
  /// \param seq_len from 1 to that of the constructor; see `has_room_for`
  /// \throws NotSupported if there is no room, or if ranks divide the tokens
  void use_seq_len(std::int64_t seq_len);

  /// The layers that this model has.
  const ModelPart& part() const { return m_part; }
  /// Whether it has the embedding.
  bool has_embedding() const { return m_part.begin == 0; }
  /// Whether it has the last norm and the head.
  bool has_head() const { return m_part.end == m_config.num_hidden_layers; }

  /// The extents of the whole model.
  const LlamaConfig& config() const { return m_config; }

  /// The operations among the ranks that divide the model (`LayerOptions::tensor`); null without others, and for a model
  /// that was moved from.
  Collectives<Exec>* tensor_ranks() const {
    return m_layers.empty() ? nullptr : m_layers.front().tensor_ranks();
  }

  /// The ranks that divide the tokens (`LayerOptions::context`); null without others, and for a model that was moved
  /// from.
  Impl::ContextRanks<Exec, T>* context_ranks() const {
    return m_layers.empty() ? nullptr : m_layers.front().context_ranks();
  }

 private:
  // Embedding, last norm and, unless tied, the head.
  template <class U>
  struct Ends {
    BlockMatrix<memory_space, U> embedding, head;
    BlockVector<memory_space, U> norm;
    MemoryBlock<memory_space> block;
  };
  // What the arrays hold that backward reads.
  enum class Saved { nothing, forward, forward_embedded };
  // What is remembered of the forward of a slot.
  struct Pass {
    Saved saved = Saved::nothing;
    bool has_hidden = false;    // in m_hidden or m_last
    bool weights_wait = false;  // for `backward_weights`
    PackedTokens<memory_space> packed;
  };

  template <class U>
  void place_ends(Ledger& ledger, MemoryClass memory_class, Ends<U>& ends) const;
  bool divides_states() const { return tensor_ranks() && m_options.sequence_parallel; }
  // Tokens of states, which ranks may divide.
  std::int64_t state_rows() const;
  Arena<memory_space> activation_arena();
  void bind_activations();
  void place_activations(Ledger& ledger);
  std::string layer_prefix(std::size_t l) const {
    return "model.layers." + std::to_string(m_part.begin + static_cast<std::int64_t>(l)) + ".";
  }
  Arena<memory_space> workspace_arena();
  void place_workspace(Ledger& ledger);
  LinearCrossEntropyOptions loss_options(const CrossEntropyOptions& options) const {
    return {.cross_entropy = options, .chunk_rows = m_chunk_rows, .batch_invariant = m_options.batch_invariant};
  }
  void clear_gradients_of_ends(const Exec& exec);
  void begin_gradients_of_ends(const Exec& exec);
  void gradients_are_ready(const Exec& exec, std::size_t group) const;
  void layer_is_ready(const Exec& exec, std::size_t l) const;
  void require_prepared(const char* function) const;
  void require_forward(const char* function) const;
  void require_saved(Saved saved, const char* function, const char* forward) const;
  void require_packed(const char* function, const PackedTokens<memory_space>& packed) const;
  void require_states(const char* function, const char* role, const TensorRef& states) const;
  bool trains() const { return m_options.mode == LayerMode::training; }
  bool adapts() const { return m_options.lora.any(); }
  bool uses_adapters() const { return adapts() && m_adapter_use == AdapterUse::on; }
  bool trains_ends() const { return trains() && !adapts(); }
  bool takes_turns() const { return m_options.gradient_turns > 0; }
  // Whether the gradient of the head is in the array of that of the embedding.
  bool ends_take_turns() const {
    return takes_turns() && !m_config.tie_word_embeddings && has_embedding() && has_head();
  }
  // Whether the gradient of the embedding is added up until the end of a step, because another part has the embedding, too.
  bool keeps_embedding_gradient() const {
    return takes_turns() && m_config.tie_word_embeddings && has_embedding() != has_head();
  }
  void check_schedule() const;
  void check_formats() const;
  void add_layers(Ledger& ledger);
  void run_layer(const Exec& exec, std::int64_t l, const Matrix& x, const Matrix& y);
  void reverse_layer(const Exec& exec, std::int64_t l, const Matrix& x, const Matrix& dy, const Matrix& dx);
  void run_layers(const Exec& exec, const PackedTokens<memory_space>& packed);
  void require_head(const char* function, bool wanted) const;
  Matrix layer_gradients(const Exec& exec, const Tokens& targets, const ConstTokenNumbers& dloss,
                         const TokenNumbers& loss, const CrossEntropyOptions& options, const Matrix* dx);
  Matrix reverse_layers(const Exec& exec, const Matrix* dx);
  void embedding_gradient(const Exec& exec, const Tokens& ids, const Matrix& dx);
  const Matrix& head() const { return m_config.tie_word_embeddings ? m_weight.embedding : m_weight.head; }
  const BlockMatrix<memory_space, C>& head_gradient() const {
    return m_config.tie_word_embeddings ? m_gradient.embedding : m_gradient.head;
  }

  // A decoder may borrow the weights.
  friend class LlamaDecoder<Exec, T>;

  LlamaConfig m_config;
  ModelPart m_part;
  LayerShape m_shape;         // of the sequences that it works on
  std::int64_t m_seq_len;     // of the constructor
  std::int64_t m_chunk_rows;  // whose logits exist at once, at most
  LayerOptions m_options;
  Impl::MoveGuard m_guard;
  std::shared_ptr<const int> m_memory = std::make_shared<const int>();  // goes where the arrays go
  bool m_prepared = false;
  AdapterUse m_adapter_use = AdapterUse::on;
  std::deque<DecoderLayer<Exec, T>> m_layers;  // neither copied nor moved
  Ends<T> m_weight;
  Ends<C> m_gradient;
  Impl::VocabularyRanks<Exec, T> m_vocabulary;
  std::vector<MemoryBlock<memory_space>> m_blocks;  // by slot
  MemoryBlock<memory_space> m_workspace_block;
  RecomputeSchedule m_schedule;
  std::vector<Matrix> m_kept;         // inputs of layers; in inference two arrays that take turns
  CheckpointedChain<Matrix> m_chain;  // of the layers; in training
  OffloadedStates<Exec> m_offloaded;
  std::vector<std::int64_t> m_offload_index;  // of each layer among those whose input is offloaded, or −1
  Matrix m_last, m_hidden, m_dx, m_dy;
  std::vector<Pass> m_passes = std::vector<Pass>(1);  // by slot
  std::size_t m_slot = 0;
  std::function<void(const Exec&, std::size_t)> m_gradients_ready;
  BlockVector<memory_space, C> m_rstd;
  BlockVector<memory_space, std::byte> m_loss_workspace, m_norm_workspace;
};

}  // namespace kformer
