// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <set>

#include "kformer/io/sweep.hpp"

/// \file
/// Decks of kind "layer_sweep": one transformer layer, timed and checked over a grid of shapes and precisions.

namespace kformer {

/// The published model family whose layer this is.
enum class ModelType { llama, mistral, qwen2 };
/// The names of the enumerators in decks and results, in order.
constexpr std::array<std::string_view, 3> names_of(ModelType) { return {"llama", "mistral", "qwen2"}; }

/// The activation of the gated MLP.
enum class HiddenAct { silu };
/// The names of the enumerators in decks and results, in order.
constexpr std::array<std::string_view, 1> names_of(HiddenAct) { return {"silu"}; }

/// How the RoPE frequencies are scaled.
enum class RopeType { none, llama3 };
/// The names of the enumerators in decks and results, in order.
constexpr std::array<std::string_view, 2> names_of(RopeType) { return {"none", "llama3"}; }

/// The table [model.rope_scaling]; the defaults are those of Llama 3.1.
struct RopeScalingTable {
  RopeType rope_type = RopeType::none;  ///< none: the other keys mean nothing
  double factor = 8;                    ///< low frequencies are divided by this
  double low_freq_factor = 1;           ///< wavelengths above original / this are scaled in full
  double high_freq_factor = 4;          ///< wavelengths below original / this are kept
  std::int64_t original_max_position_embeddings = 8192;  ///< context length of the first training, in tokens
  bool operator==(const RopeScalingTable&) const = default;  ///< all keys equal
};

/// The table [model], with the keys of published config.json files.
struct ModelTable {
  std::filesystem::path config;             ///< config.json that was read, absolute; empty if none was named
  ModelType model_type = ModelType::llama;  ///< family
  std::int64_t hidden_size = 0;             ///< features of a token
  std::int64_t num_attention_heads = 0;     ///< query heads
  std::int64_t num_key_value_heads = 0;     ///< 0 = num_attention_heads
  std::int64_t head_dim = 0;                ///< 0 = hidden_size / num_attention_heads
  std::int64_t intermediate_size = 0;       ///< features inside the MLP
  double rms_norm_eps = 1e-5;               ///< added to the mean square
  HiddenAct hidden_act = HiddenAct::silu;   ///< activation of the MLP
  double rope_theta = 10000;                ///< base of the RoPE frequencies
  RopeScalingTable rope_scaling;            ///< scaling of the RoPE frequencies
  bool attention_bias = false;              ///< biases on the q, k and v projections
  std::int64_t sliding_window = 0;          ///< keys a query sees, 0 = all before it

  /// Keys whose value is known: without [tensors] all of them, with [tensors] only those that the deck or its
  /// `config` gives; the others are for the tensor file to say.
  std::set<std::string> known;
  bool operator==(const ModelTable&) const = default;  ///< all keys equal
};

/// A contradiction inside a `ModelTable`.
struct ModelFault {
  std::string key;      ///< the key to blame, without its table
  std::string message;  ///< what is wrong and what to do
};

/// Derives num_key_value_heads and head_dim where they are 0 and can be derived, and checks the table:
/// key/value heads divide the query heads, the head dimension is even, biases and frequency factors make sense.
/// Keys that are still 0 are not judged, so that an incomplete table can be checked before the tensor file adds
/// the rest.
/// \returns the contradictions, none for a sound table
std::vector<ModelFault> complete_model(ModelTable& model);

/// What the weights of an optimizer step are kept in, where they are stored in 16 bits.
enum class MasterWeights { f32, none };
/// The names of the enumerators in decks and results, in order.
constexpr std::array<std::string_view, 2> names_of(MasterWeights) { return {"f32", "none"}; }

/// How the loss is scaled.
enum class LossScalingRule { none, fixed, dynamic };
/// The names of the enumerators in decks and results, in order.
constexpr std::array<std::string_view, 3> names_of(LossScalingRule) { return {"none", "static", "dynamic"}; }

/// The table [precision]. The storage type is an axis of the sweep.
struct PrecisionTable {
  Compute compute = Compute::storage;         ///< operands of products that are never in memory
  MasterWeights master = MasterWeights::f32;  ///< of 16-bit weights
  LossScalingRule loss_scaling =
      LossScalingRule::none;              ///< how the loss is scaled; none: the others mean nothing
  double initial_loss_scale = 4096;       ///< the first scale, and the only one of `static`
  double growth_factor = 2;               ///< after `growth_interval` good steps
  double backoff_factor = 0.5;            ///< after a step with gradients not finite
  std::int64_t growth_interval = 2000;    ///< good steps in a row before the scale grows
  double least_loss_scale = 1;            ///< it does not fall below this
  double greatest_loss_scale = 16777216;  ///< it does not grow beyond this
  bool operator==(const PrecisionTable&) const = default;  ///< all keys equal
};

/// How the states of the optimizer are stored.
enum class StateStorage { full, int8 };
/// The names of the enumerators in decks and results, in order.
constexpr std::array<std::string_view, 2> names_of(StateStorage) { return {"full", "int8"}; }

/// The table [optimizer]: AdamW, for the direction "step".
struct OptimizerTable {
  double learning_rate = 1e-3;                             ///< α
  double beta1 = 0.9;                                      ///< of the running mean of the gradient
  double beta2 = 0.999;                                    ///< of the running mean of its square
  double eps = 1e-8;                                       ///< added to the root of the running mean square
  double weight_decay = 0;                                 ///< λ, of matrices
  double max_norm = 0;                                     ///< gradients are clipped to this norm, 0 = never
  StateStorage states = StateStorage::full;                ///< storage of the running means
  bool operator==(const OptimizerTable&) const = default;  ///< all keys equal
};

/// The axes of a layer sweep: `Slot<T>` is a list of values in a sweep or an exclusion, one value in a case.
template <template <class> class Slot>
struct LayerPoint {
  Slot<std::string>
      execution_space{};  ///< lower-case name of a Kokkos execution space; "all" and "default" in decks only
  Slot<std::string> dtype{};                           ///< storage type: f32, bf16, f16, f64
  Slot<Direction> direction{};                         ///< pass that is measured
  Slot<std::int64_t> batch{};                          ///< sequences
  Slot<std::int64_t> seq_len{};                        ///< tokens of a sequence
  Slot<AttentionImpl> impl{};                          ///< attention
  bool operator==(const LayerPoint&) const = default;  ///< all axes equal
};

/// Values along every axis; in an exclusion an empty axis matches every value.
using LayerAxes = LayerPoint<AxisValues>;
/// One point of a layer sweep.
using LayerCase = LayerPoint<AxisValue>;

/// The table [sweep].
struct LayerSweepTable {
  SweepMode mode = SweepMode::product;  ///< every combination, or the n-th values together
  /// The axes. batch and seq_len are empty where the tensor file says them.
  LayerAxes axes{{"all"}, {"f32"}, {Direction::forward, Direction::backward},
                 {},      {},      {AttentionImpl::standard}};
  std::vector<LayerAxes> exclude;                           ///< points to leave out
  bool operator==(const LayerSweepTable&) const = default;  ///< all keys equal
};

/// A deck of kind "layer_sweep".
struct LayerSweepDeck {
  RunTable run;                         ///< [run]
  TimingTable timing;                   ///< [timing]
  ProfileTable profile;                 ///< [profile]
  OutputTable output;                   ///< [output]
  ModelTable model;                     ///< [model]
  LayerSweepTable sweep;                ///< [sweep]
  CheckTable check;                     ///< [check]
  PrecisionTable precision;             ///< [precision]
  OptimizerTable optimizer;             ///< [optimizer]
  std::optional<TensorsTable> tensors;  ///< [tensors], if the deck has it
  DeckRecord record;                    ///< how the deck was read
};

/// Reads a deck of kind "layer_sweep". Needs neither Kokkos nor a device.
/// \throws FileError if the file cannot be read
/// \throws DeckError if the deck is invalid; the text lists every fault with its place
LayerSweepDeck load_layer_deck(const DeckSource& source);

/// The cases of a sweep in running order: the first axis of `LayerPoint` varies slowest, so that
/// implementations stand side by side. An axis without values gives 0, which stands for what the tensor file
/// says.
/// \param sweep the table; excluded points are left out
/// \param built_spaces lower-case names of the execution spaces of this build, the default one first: what
/// "all" and "default" stand for
/// \throws DeckError for an execution space that is not built, or when no case is left
std::vector<LayerCase> expand(const LayerSweepTable& sweep, const std::vector<std::string>& built_spaces);

/// The reference of a layer sweep.
template <>
std::string describe_deck_markdown<LayerSweepDeck>();

/// The JSON Schema of a layer sweep.
template <>
std::string describe_deck_json_schema<LayerSweepDeck>();

}  // namespace kformer
