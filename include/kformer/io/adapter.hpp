// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <map>
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

/// What the configuration of an adapter says besides `LoraConfig`.
struct AdapterDescription {
  std::string base_model;  ///< name or folder of the model that it adapts; may be empty
};

/// An adapter in a folder. Its tensors stay mapped as long as this object or a copy of it exists.
class AdapterCheckpoint {
 public:
  /// Reads the configuration and checks the tensors against it.
  /// \param folder with `adapter_config.json` and `adapter_model.safetensors`
  /// \throws FileError naming the file, and the key or tensor that is wrong or not supported
  static AdapterCheckpoint open(const std::filesystem::path& folder);

  /// Ranks, scales and dropout.
  const LoraConfig& lora() const { return m_lora; }
  /// The rest of the configuration.
  const AdapterDescription& description() const { return m_description; }

  /// Requires a tensor for every adapter of a model, with its extents, and no others.
  /// \throws FileError naming the tensor
  void check_against(const LlamaConfig& model) const;

  /// A tensor by its name in the model, such as "model.layers.0.self_attn.q_proj.lora_A.weight".
  /// \throws FileError if there is none
  CheckpointTensor at(const std::string& name) const;

 private:
  std::filesystem::path m_path;  // of the tensors
  LoraConfig m_lora;
  AdapterDescription m_description;
  std::vector<SafetensorsFile> m_file;  // one; it has no empty state
};

/// The names in a model and the extents of all tensors of its adapters.
std::map<std::string, std::vector<std::size_t>> adapter_tensor_shapes(const LlamaConfig& model,
                                                                      const LoraConfig& lora);

/// The text of `adapter_config.json`.
std::string adapter_config_json(const LoraConfig& lora, const AdapterDescription& description);

/// What PEFT puts before the name of a tensor in the model.
inline constexpr const char* adapter_prefix = "base_model.model.";

/// The name of the configuration.
inline constexpr const char* adapter_config_name = "adapter_config.json";

/// The name of the file of tensors.
inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";

}  // namespace kformer
