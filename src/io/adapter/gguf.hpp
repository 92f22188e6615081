// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kformer/io/checkpoint_tensor.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/model/lora_config.hpp"

/// \file
/// Adapters in GGUF files.

namespace kformer::Impl {

/// What a file holds, under the names and in the order of rows of a model.
struct GgufAdapter {
  LoraConfig lora;
  std::map<std::string, CheckpointTensor> tensors;
  std::vector<std::vector<std::byte>> bytes;  ///< of the tensors
};

/// Reads the adapter of a model.
/// \throws FileError naming the file, and the key or tensor that is wrong or not supported
GgufAdapter read_gguf_adapter(const std::filesystem::path& path, const LlamaConfig& model);

}  // namespace kformer::Impl
