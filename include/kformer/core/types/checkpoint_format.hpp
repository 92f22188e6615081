// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// How a checkpoint is stored.
enum class CheckpointFormat {
  automatic,    ///< detected from the path
  safetensors,  ///< a folder with config.json and model.safetensors or its index, or such a file beside
                ///< config.json
  gguf,         ///< a GGUF file, version 3
  packed        ///< as safetensors, with quantised weights: what `PackedCheckpointWriter` writes
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 4> names_of<CheckpointFormat> = {"auto", "safetensors", "gguf",
                                                                               "checkpoint"};

}  // namespace kformer
