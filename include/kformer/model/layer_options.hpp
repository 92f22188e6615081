// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "kformer/core/types/attention_algorithm.hpp"
#include "kformer/core/types/context_exchange.hpp"
#include "kformer/core/types/names.hpp"
#include "kformer/core/types/precision.hpp"
#include "kformer/core/types/recompute.hpp"
#include "kformer/model/lora_config.hpp"
#include "kformer/model/weight_formats.hpp"

/// \file
/// What layers and models are made for. Free of Kokkos.

namespace kformer {

class Communicator;

/// Whether a layer keeps what backward needs.
enum class LayerMode { inference, training };
/// The names of the enumerators in messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<LayerMode> = {"inference", "training"};

/// The tokens a layer works on at once.
struct LayerShape {
  std::int64_t batch;    ///< sequences
  std::int64_t seq_len;  ///< tokens of a sequence

  /// Tokens in all.
  std::int64_t rows() const { return batch * seq_len; }
  /// Whether both extents are equal.
  bool operator==(const LayerShape&) const = default;
};

/// Consecutive layers of a model, of which a stage of a pipeline is made.
struct ModelPart {
  std::int64_t begin = 0;  ///< the first layer; the part with layer 0 has the embedding
  std::int64_t end =
      -1;  ///< behind the last; −1: to the end. The part with the last layer has its norm and the head

  /// Whether both are equal.
  bool operator==(const ModelPart&) const = default;
};

/// Options of `DecoderLayer` and of the layers of `LlamaModel`.
struct LayerOptions {
  AttentionAlgorithm attention = AttentionAlgorithm::flash;  ///< how attention is computed
  LayerMode mode = LayerMode::training;                      ///< whether there will be a backward
  Precision compute = Precision::storage;                    ///< precision of the weights of flash attention
  bool causal = true;  ///< a query sees no later keys; false: it sees all keys, as in an encoder
  Recompute recompute = Recompute::pointwise;  ///< what a layer keeps for backward: none, pointwise or layer. A
                                               ///< model has a schedule instead, which says it for each layer
  bool batch_invariant =
      false;            ///< forward: a token has the same bits whatever the other sequences are and however
                        ///< many, in `LlamaDecoder`, too (docs/batch_invariance.md)
  bool packed = false;  ///< whether `forward` gets packed sequences: documents of any length, one after another
  bool accumulate =
      true;  ///< whether backward adds to the gradients; false: it overwrites them, and in a model
             ///< most of them lie over what layers behind saved, until the next forward
  std::int64_t gradient_turns =
      0;  ///< if positive, and without `accumulate`, the layers of a model take turns in so many
          ///< arrays of gradients, which last until another layer needs them; the head has that of
          ///< the embedding, too: `LlamaModel::on_gradients`
  std::int64_t slots =
      1;  ///< of a model in training: micro-batches that have gone forward and not yet backward, at
          ///< most: `LlamaModel::use_slot`
  bool split_backward = false;  ///< whether the gradients of layers, or those of adapters, are left to
      ///< `backward_weights`, after which a micro-batch is done; layers then keep some
      ///< gradients of activations, and those of norms and biases, too
  LoraConfig lora{};  ///< adapters; where there are any, they alone have gradients
  WeightFormats
      formats{};  ///< with adapters, the projections whose weights stay quantised (QLoRA: Dettmers et al.,
                  ///< arXiv:2305.14314), by the names that `parameters()` would have
  /// Ranks that divide heads, the features inside the MLP, and in a model the vocabulary (Shoeybi et al.,
  /// arXiv:1909.08053, section 3). All make the same calls with the same tokens; null: this one alone.
  std::shared_ptr<Communicator> tensor{};
  /// Whether these ranks also divide the tokens wherever they have whole features: states, norms and residuals
  /// (Korthikanti et al., arXiv:2205.05198, section 4.2.2). They must divide batch · seq_len.
  bool sequence_parallel = false;
  /// Ranks that divide the tokens of each sequence: `seq_len` is of one rank, which has two chunks of the sequence (see
  /// docs/parallel.md). All make the same calls; null: this one alone.
  std::shared_ptr<Communicator> context{};
  ContextExchange context_exchange = ContextExchange::all_gather;  ///< of keys and values, with `context`

  /// Whether all options are equal.
  bool operator==(const LayerOptions&) const = default;
};

}  // namespace kformer
