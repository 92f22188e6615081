// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "io/adapter/config.hpp"
#include "kformer/io/checkpoint_tensor.hpp"

/// \file
/// Tensors of an adapter that are not as its file has them.

namespace kformer::Impl {

/// Those of a GGUF file by their names in a model. Of a folder those that lack ranks, and zeros for layers without an
/// adapter, which have names such as "self_attn.q_proj.lora_A.weight".
struct MadeTensors {
  std::map<std::string, CheckpointTensor> tensors;
  std::vector<std::vector<std::byte>> bytes;  ///< of the tensors
  AdapterConfig config;                       ///< of a folder
};

}  // namespace kformer::Impl
