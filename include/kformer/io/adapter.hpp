// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kformer/io/checkpoint_tensor.hpp"
#include "kformer/io/safetensors.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/model/lora_config.hpp"

/// \file
/// Low-rank adapters as Hugging Face's PEFT stores them: a folder with `adapter_config.json` and
/// `adapter_model.safetensors`.

namespace kformer {

namespace Impl {
struct MadeTensors;
}

/// What the configuration of an adapter says besides `LoraConfig`.
struct AdapterDescription {
  std::string base_model;  ///< name or folder of the model that it adapts; may be empty
};

/// An adapter in a folder. Its tensors stay mapped as long as this object or a copy of it exists.
///
/// All layers have the ranks of `lora()`. Where the configuration gives a layer a lower rank (`rank_pattern`) or no adapter
/// (`layers_to_transform`), A and B have zeros instead. They change nothing, and training leaves them zero: each of the two
/// is a factor of the other's gradient.
class AdapterCheckpoint {
 public:
  /// Reads the configuration and checks the tensors against it.
  /// \param folder with `adapter_config.json` and `adapter_model.safetensors`
  /// \throws FileError naming the file, and the key or tensor that is wrong or not supported
  static AdapterCheckpoint open(const std::filesystem::path& folder);

  /// Reads an adapter of a model, and checks that it fits. Rows of q and k that llama.cpp stores in another order are
  /// reordered, so this takes the model.
  /// \param path  a folder in PEFT's layout, or a GGUF file of llama.cpp: `general.type` = "adapter"
  /// \param model what it adapts
  /// \throws FileError naming the file, and the key or tensor that is wrong or not supported
  static AdapterCheckpoint open(const std::filesystem::path& path, const LlamaConfig& model);

  /// Ranks, scales and dropout.
  const LoraConfig& lora() const { return m_lora; }
  /// The rest of the configuration.
  const AdapterDescription& description() const { return m_description; }

  /// Requires a tensor for every adapter of a model, with its extents, and no others.
  /// \throws FileError naming the tensor
  void check_against(const LlamaConfig& model) const;

  /// The numbers of a tensor, row by row.
  /// \param name as of `at`
  /// \throws FileError if there is none, or its type cannot be converted
  std::vector<double> values(const std::string& name) const;

  /// A tensor by its name in the model, such as "model.layers.0.self_attn.q_proj.lora_A.weight".
  /// \throws FileError if there is none
  CheckpointTensor at(const std::string& name) const;

 private:
  void require_numbers(const std::string& name, const StoredType& type) const;

  std::filesystem::path m_path;  // of the tensors
  LoraConfig m_lora;
  AdapterDescription m_description;
  std::vector<SafetensorsFile> m_file;              // one, or none of a GGUF file
  std::shared_ptr<const Impl::MadeTensors> m_made;  // what is not as a file has it
};

/// The names in a model and the extents of all tensors of its adapters.
std::map<std::string, std::vector<std::size_t>> adapter_tensor_shapes(const LlamaConfig& model,
                                                                      const LoraConfig& lora);

/// Writes an adapter as llama.cpp reads it, in 32-bit floats: a GGUF file with `general.type` = "adapter",
/// `adapter.type` = "lora" and `adapter.lora.alpha`, and tensors such as "blk.0.attn_q.weight.lora_a". The format has one
/// α for all projections: where a factor is not α/rank, as with rsLoRA, it becomes part of B. Rows of B of q and k are
/// ordered as llama.cpp stores those of the weight. The file is written completely or not at all.
/// \param path   of the file
/// \param model  what the adapter is for
/// \param lora   ranks and scales
/// \param values the numbers of a tensor, row by row, by its name in `adapter_tensor_shapes`
/// \throws FileError naming the file and the reason
void write_gguf_adapter(const std::filesystem::path& path, const LlamaConfig& model, const LoraConfig& lora,
                        const std::function<std::vector<double>(const std::string& name)>& values);

/// The text of `adapter_config.json`.
std::string adapter_config_json(const LoraConfig& lora, const AdapterDescription& description);

/// What PEFT puts before the name of a tensor in the model.
inline constexpr const char* adapter_prefix = "base_model.model.";

/// The name of the configuration.
inline constexpr const char* adapter_config_name = "adapter_config.json";

/// The name of the file for llama.cpp, where a training writes one.
inline constexpr const char* gguf_adapter_name = "adapter.gguf";

/// The name of the file of tensors.
inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";

}  // namespace kformer
