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
#include "kformer/model/llama_config.hpp"

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

/// A layer as described by config.json or the [model] table of a deck: a `LlamaConfig`, in which 0 stands for a
/// value that is still to be derived, and the other facts of the file.
struct ModelTable : LlamaConfig {
  std::filesystem::path config;             ///< absolute path of the config.json that was read; empty if none
  ModelType model_type = ModelType::llama;  ///< family
  HiddenAct hidden_act = HiddenAct::silu;   ///< activation of the MLP

  /// Keys whose value is known: without [tensors] all of them, with [tensors] only those that the deck or its
  /// `config` gives; the others come from the tensor file.
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

/// A whole model: token embedding, equal layers, a last normalisation, and the projection to the vocabulary. All
/// its keys are known.
struct LanguageModelTable : ModelTable {
  std::vector<std::int64_t> bos_token_ids;  ///< what a text begins with; empty if the file names none
  std::vector<std::int64_t> eos_token_ids;  ///< tokens that end a text; empty if the file names none
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

/// Text of a config.json that read_model_config() reads back as the same table, except for `layer.config`. Only a llama with
/// a window becomes a mistral, whose layers are the same: other programs ignore the windows of a llama.
std::string model_config_json(const LanguageModelTable& model);

}  // namespace kformer
