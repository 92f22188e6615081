// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/types/names.hpp"

/// \file
/// The model of a published checkpoint, with the keys of config.json files.

namespace kformer {

/// The published model family. Layers of `qwen2` have biases on the q, k and v projections; layers of `qwen3`
/// normalise every head of q and k by RMSNorm, with weights of their own, before RoPE.
enum class ModelType { llama, mistral, qwen2, qwen3 };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 4> names_of<ModelType> = {"llama", "mistral", "qwen2", "qwen3"};

/// The activation of the gated MLP.
enum class HiddenAct { silu };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 1> names_of<HiddenAct> = {"silu"};

/// How the RoPE frequencies are scaled.
enum class RopeType { none, llama3 };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<RopeType> = {"none", "llama3"};

/// The table [model.rope_scaling]; the defaults are those of Llama 3.1.
struct RopeScalingTable {
  RopeType rope_type = RopeType::none;                   ///< none: the other keys have no effect
  double factor = 8;                                     ///< low frequencies are divided by this
  double low_freq_factor = 1;                            ///< wavelengths above original / this are fully scaled
  double high_freq_factor = 4;                           ///< wavelengths below original / this are kept
  std::int64_t original_max_position_embeddings = 8192;  ///< context length of the original training, in tokens
  bool operator==(const RopeScalingTable&) const = default;  ///< all keys equal
};

/// The table [model]: one layer, with the keys of published config.json files.
struct ModelTable {
  std::filesystem::path config;             ///< config.json that was read, absolute; empty if none was named
  ModelType model_type = ModelType::llama;  ///< family
  std::int64_t hidden_size = 0;             ///< features per token
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

  /// Keys whose value is known: all without [tensors]; with [tensors] only those that the deck or its
  /// `config` sets; the tensor file sets the others.
  std::set<std::string> known;
  bool operator==(const ModelTable&) const = default;  ///< all keys equal
};

/// A contradiction inside a `ModelTable`.
struct ModelFault {
  std::string key;      ///< the offending key, without its table
  std::string message;  ///< what is wrong and what to do
};

/// Derives num_key_value_heads and head_dim where they are 0 and can be derived, and checks the table:
/// key/value heads divide the query heads, the head dimension is even, biases and frequency factors make sense.
/// Keys that are still 0 are not judged, so that an incomplete table can be checked before the tensor file adds
/// the rest.
/// \returns the contradictions; empty for a valid table
std::vector<ModelFault> complete_model(ModelTable& model);

/// A whole model: token embedding, equal layers, a last normalisation, and the projection to the vocabulary.
struct LanguageModelTable {
  ModelTable layer;                          ///< each of the layers; complete, and all its keys are known
  std::int64_t num_hidden_layers = 0;        ///< layers
  std::int64_t vocab_size = 0;               ///< rows of the token embedding
  std::int64_t max_position_embeddings = 0;  ///< context length of training, in tokens
  bool tie_word_embeddings = false;          ///< the token embedding is also the output matrix
  bool qk_norm = false;                      ///< every head of q and k is normalised before RoPE (qwen3)
  std::vector<std::int64_t> bos_token_ids;   ///< tokens that begin a text; empty if the file names none
  std::vector<std::int64_t> eos_token_ids;   ///< tokens that end a text; empty if the file names none
  bool operator==(const LanguageModelTable&) const = default;  ///< all keys equal
};

/// Reads a published config.json of the families of `ModelType` (Llama 1 to 3, SmolLM2, Mistral, Qwen2, Qwen3).
///
/// Whatever the file says that changes the numbers is either in the table or an error: another activation, RoPE
/// scalings other than llama3, biases of the MLP or of the attention output, RoPE on part of a head,
/// windows on only some layers, quantised weights of other formats. Other keys are ignored; keys that are null
/// or absent have the default of the family.
/// \param path of the file
/// \throws FileError naming the file, every invalid key, and what was expected
LanguageModelTable read_model_config(const std::filesystem::path& path);

/// Text of a config.json that read_model_config() reads back as the same table, except for `layer.config`.
std::string model_config_json(const LanguageModelTable& model);

}  // namespace kformer
