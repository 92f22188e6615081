// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "kformer/core/move_guard.hpp"
#include "kformer/model/impl/decoder_ranks.hpp"
#include "kformer/model/impl/vocabulary_ranks.hpp"
#include "kformer/model/kv_cache.hpp"
#include "kformer/model/layer_adapters.hpp"
#include "kformer/model/weight_matrix.hpp"
#include "kformer/parallel/collectives.hpp"

/// \file
/// The language model of the Llama family on a few tokens at a time, against a cache of keys and values.

namespace kformer {

template <class Exec, Scalar T>
class LlamaModel;

namespace Impl {
template <class Exec, Scalar T, std::size_t count>
struct DecoderMap;
}

/// What a decoder must be able to do.
struct DecoderOptions {
  std::int64_t max_rows = 512;                  ///< most tokens of a step, of all sequences
  std::int64_t max_logit_rows = 1;              ///< maximum number of tokens whose logits exist at once
  std::int64_t max_positions = 2048;            ///< positions of tokens are below this
  WeightFormats formats{};                      ///< weights that stay quantised
  Activations activations = Activations::full;  ///< what quantised weights are multiplied with
  Precision compute = Precision::storage;       ///< as of `DecoderLayer`
  bool batch_invariant = false;                 ///< as of `DecoderLayer`: the same bits as `LlamaModel`
  std::vector<LoraConfig> adapters{};           ///< among which every token of a step has one or none
  /// Ranks that divide heads, the features inside the MLP, and the vocabulary, as of `LayerOptions`. All make the same
  /// calls with the same tokens; null: this one alone.
  std::shared_ptr<Communicator> tensor{};
};

/// A causal language model for generation: the function of `LlamaModel`, computed step by step. The decoder owns
/// its weights, which may be quantised, or borrows those of a `LlamaModel`; it owns the arrays of one step, which
/// all layers share. What was seen is in a `KvCache`. Allocates only in its constructor.
///
/// With `DecoderOptions::adapters` tokens of one step may have different low-rank adapters (as in S-LoRA: Sheng et al.,
/// arXiv:2311.03285). Those of a weight lie side by side as one adapter of all their ranks: `x Aᵀ` is computed for all,
/// and set to 0 where a token has another one. So each weight is read once for all tokens. A matrix with an infinity or
/// NaN makes all tokens NaN. If there is one adapter and no choice, the product of a dense weight adds it in registers.
///
/// Adapters with magnitudes (DoRA) multiply the rows of a map by m/‖W + s B A‖. These gains are computed by `prepare` and
/// `update_gains`, and not in each step.
///
/// With `DecoderOptions::tensor` each of n ranks has the part of the model that it has of a `LlamaModel`, and a cache of its
/// own key heads: `KvCache::create(decoder.config(), …)`. A step of some tokens sums (tokens, hidden) over the ranks behind
/// the embedding, and twice in each layer; `logits` gathers those of all words. They have the same bits on every rank, so
/// that all sample the same tokens. With `batch_invariant` they are those of a `LlamaModel` of as many ranks.
///
/// Regions for Kokkos Tools are those of `DecoderLayer` and `embedding`, `head`.
///
/// The members are compiled into the library, for every execution space of Kokkos and every storage type.
template <class Exec, Scalar T>
class LlamaDecoder {
 public:
  /// The decoder's memory space.
  using memory_space = typename Exec::memory_space;
  /// The type of arithmetic.
  using C = compute_t<T>;
  /// A (rows, columns) array in the decoder's memory.
  using Matrix = BlockMatrix<memory_space, T>;
  /// Tokens, positions or rows.
  using Integers = StridedVector<memory_space, const std::int32_t>;

  /// Books and allocates everything; weights are undefined until they are written.
  /// \throws DimensionMismatch if the configuration or an option is out of range
  /// \throws NotSupported if `formats` has a name that no matrix of the model has, NF4 and `activations` are int8,
  ///                      an adapter has no projection, or ranks do not divide an extent, or divide quantised blocks
  /// \throws OutOfMemory with the ledger
  LlamaDecoder(const LlamaConfig& config, const DecoderOptions& options, Ledger& ledger);

  /// The same function with the weights and adapters of a model, of which nothing is copied: a step computes with what
  /// the model holds at that time, such as after a step of training. Cached keys and values stay those of their time.
  /// \param model   a causal one; it, or the one it is moved to, must exist whenever the decoder computes
  /// \param options without `formats` and `adapters`, which are the model's, and `tensor`
  /// \param ledger  where rotary tables, arrays of a step and workspace are booked
  /// \throws DimensionMismatch if an option is out of range
  /// \throws NotSupported if the model was moved from or is not causal, or an option does not fit
  /// \throws OutOfMemory with the ledger
  LlamaDecoder(const LlamaModel<Exec, T>& model, const DecoderOptions& options, Ledger& ledger);

  /// The slots of the weights, by published name. The embedding is also the head, if they are
  /// tied.
  std::vector<WeightSlot> weights() const;

  /// The matrices of an adapter: "model.layers.0.self_attn.q_proj.lora_A.weight", (rank, in), and
  /// "model.layers.0.self_attn.q_proj.lora_B.weight", (out, rank) with rows further apart if there are several adapters.
  /// With magnitudes also "model.layers.0.self_attn.q_proj.lora_magnitude_vector", (out). Without gradients. Ranks that
  /// divide the decoder have their parts.
  /// \param adapter 0 … `options().adapters.size()` − 1
  /// \throws NotSupported if there is no such adapter
  std::vector<Parameter> adapters(std::int64_t adapter) const;

  /// Fills the rotary tables, and computes gains as `update_gains` does. Call it once before `step`, when weights and
  /// adapters have been written.
  void prepare(const Exec& exec);

  /// Computes the gains of adapters with magnitudes (DoRA) anew. Call it when weights, adapters or magnitudes have changed;
  /// `Generator::start` does so for a decoder that borrows a model. Without effect where no adapter has magnitudes.
  /// \param exec the instance everything is launched on
  void update_gains(const Exec& exec);

  /// Computes the hidden states of the tokens of a step; `cache` has an open step of exactly these tokens.
  /// \param exec      the instance everything is launched on; nothing is fenced or allocated
  /// \param ids       (rows), int32: the new tokens of all sequences, consecutively
  /// \param positions (rows), int32: the places of the tokens in their texts
  /// \param cache     what was seen
  /// \param adapters  (rows), int32: the adapter of each token, or −1 for the base alone, which has the bits of a decoder
  ///                  without adapters where products have; any other number makes its token NaN. A decoder without
  ///                  adapters does not read them. Not given: the only adapter, or none if there is none
  /// \throws NotSupported if `prepare` was not called, there are several adapters and none is chosen, or the decoder
  ///                      is batch-invariant and the cache neither contiguous nor paged
  /// \throws DimensionMismatch if there are more rows than the decoder was made for, or other numbers of ids,
  ///                           positions and adapters
  void step(const Exec& exec, const Integers& ids, const Integers& positions, KvCache<Exec, T>& cache,
            const Integers& adapters = {});

  /// The logits of some tokens of the last step.
  /// \param exec the instance
  /// \param rows (count), int32: which tokens of the step, by their row; NaN for a row that the step did not have
  /// \returns (count, vocab_size), in memory of the decoder, until the next call
  /// \throws NotSupported if there was no step
  /// \throws DimensionMismatch if there are more rows than the decoder was made for
  Matrix logits(const Exec& exec, const Integers& rows);

  /// The extents of what this rank has; hidden_size and vocab_size are whole.
  const LlamaConfig& config() const { return m_config; }
  /// What it was made for.
  const DecoderOptions& options() const { return m_options; }
  /// Bytes of the weights that every step reads, adapters included: all except the embedding, unless it is the
  /// head.
  std::size_t weight_bytes() const { return m_weight_bytes; }
  /// The operations among the ranks that divide it (`DecoderOptions::tensor`), or null.
  Collectives<Exec>* tensor_ranks() { return m_tensor ? &*m_tensor : nullptr; }
  /// Whether the weights are those of a model, which may learn.
  bool borrows() const { return m_borrows; }

 private:
  using Weight = WeightMatrix<memory_space, T>;

  struct Gains {
    BlockVector<memory_space, T> magnitude;  // (adapters with magnitudes · out), one behind the other
    BlockVector<memory_space, C> gain;       // the same: m/‖W + s B A‖
  };
  struct Layer {
    BlockVector<memory_space, T> norm1, norm2, q_norm, k_norm, bias;
    Weight qkv, out, gate_up, down;
    MemoryBlock<memory_space> block;
    LayerAdapters<memory_space, T> adapter;
    std::array<Gains, 4> gains;  // by fused weight
    MemoryBlock<memory_space> magnitude_block, gain_block;
  };
  template <std::size_t count>
  using Map = Impl::DecoderMap<Exec, T, count>;
  using Fused = Impl::FusedWeight;

  void check_options() const;
  void divide(Ledger& ledger);
  void borrow(const LlamaModel<Exec, T>& model);
  void place_layer(std::int64_t number, Ledger& ledger);
  void place_magnitudes(Layer& layer, Ledger& ledger);
  void place_gains(Layer& layer, Ledger& ledger);
  void place_ends(Ledger& ledger);
  void place_arrays(Ledger& ledger);
  std::size_t product_workspace_bytes() const;
  void require_rows(const char* function, std::size_t rows, std::int64_t most) const;
  static void require_invariant(KvCacheKind kind);
  void require_memory(const char* function) const;
  template <std::size_t count>
  Map<count> map(const Layer& layer, Fused which, const Weight& weight,
                 const AdapterMatrices<memory_space, T, count>& adapter, std::size_t rows) const;
  template <std::size_t count>
  void update_gains(const Exec& exec, const Layer& layer, Fused which, const Weight& weight,
                    const AdapterMatrices<memory_space, T, count>& adapter);
  static void measure_rows(const Exec& exec, const WeightSlot& weight, const Matrix& b, const Matrix& a,
                           double scale, const BlockVector<memory_space, C>& norm);
  BlockVector<memory_space, std::int32_t> scaled_of(Fused which) const;
  void embed(const Exec& exec, const Integers& ids, const Matrix& x);
  template <class M>
  void add_product(const Exec& exec, const M& map, const Matrix& from, const Matrix& x, const Matrix& spare);
  void rotate(const Exec& exec, const Layer& layer, const Matrix& qkv, const Integers& positions);
  void feed_forward(const Exec& exec, const Layer& layer, const Matrix& x, const Matrix& normed);

  const Weight& head() const { return m_config.tie_word_embeddings ? m_embedding : m_head; }
  QuantizedLinearOptions product_options() const {
    return {.activations = m_options.activations, .batch_invariant = m_options.batch_invariant};
  }

  LlamaConfig m_config;  // of this rank
  DecoderOptions m_options;
  Impl::VocabularySlice m_words;              // of this rank
  std::optional<Collectives<Exec>> m_tensor;  // that divide the model
  Impl::MoveGuard m_guard;
  bool m_prepared = false;
  std::int64_t m_step_rows = -1;  // tokens of the last step, once it is done
  std::size_t m_weight_bytes = 0;
  std::weak_ptr<const int> m_owner;  // of the arrays, if they are borrowed
  bool m_borrows = false;
  std::vector<Layer> m_layers;
  Weight m_embedding, m_head;
  BlockVector<memory_space, T> m_norm;
  MemoryBlock<memory_space> m_ends_block, m_table_block, m_block, m_workspace_block;
  BlockMatrix<memory_space, C> m_cos, m_sin;
  Matrix m_x, m_normed, m_qkv, m_attention, m_gate_up, m_chosen, m_logits;
  std::shared_ptr<Ledger> m_ledger;                     // counts transfers
  Impl::DecoderRanks m_ranks;                           // of all adapters
  BlockVector<memory_space, T> m_xa;                    // of one product at a time
  BlockVector<memory_space, std::int32_t> m_of;         // the adapter of each rank
  BlockVector<memory_space, std::int32_t> m_scaled_of;  // as of `DecoderRanks`
  Integers m_chosen_adapters;                           // of the rows of this step
  BlockVector<memory_space, std::int32_t> m_local;  // the words of a step, counted from the first of this rank
  BlockVector<memory_space, T> m_logit_parts;       // by rank, as of `LogitParts`
  BlockVector<memory_space, C> m_rstd, m_head_rstd;
  BlockVector<memory_space, std::byte> m_workspace;
};

}  // namespace kformer
