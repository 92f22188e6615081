// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string_view>

/// \file
/// Readers of foreign bytes as functions of these bytes. A reader may refuse them with a `kformer::Error`. Any other
/// exception is a fault, and so is what a sanitizer finds, and more memory than an input of that size allows.

namespace kformer::Testing {

/// A reader under test.
struct FuzzTarget {
  std::string_view name;
  void (*read)(std::string_view bytes);
};

std::span<const FuzzTarget> checkpoint_targets();  ///< safetensors, packed weights, GGUF, shards, config.json
std::span<const FuzzTarget> adapter_targets();     ///< adapters in PEFT's layout and in GGUF
std::span<const FuzzTarget> training_targets();    ///< checkpoints of training
std::span<const FuzzTarget> tensor_targets();      ///< tensors of a layer, of attention
std::span<const FuzzTarget> text_targets();        ///< tokenizers, chat templates
std::span<const FuzzTarget> data_targets();        ///< training data and the cache of tokens
std::span<const FuzzTarget> hdf5_targets();        ///< tokens, and what lies where results are to be written
std::span<const FuzzTarget> deck_targets();        ///< decks of every kind, and overrides of their keys

/// The target of this name, or nothing.
const FuzzTarget* find_fuzz_target(std::string_view name);

/// Reads `bytes`. Returns false where the reader refused them with an error of the library.
/// \throws std::logic_error if the reader held more memory at a time than `allowed_bytes` (held_bytes.hpp)
bool is_read(const FuzzTarget& target, std::string_view bytes);

}  // namespace kformer::Testing
