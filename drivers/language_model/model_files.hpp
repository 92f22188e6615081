// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "decks/generate_deck.hpp"
#include "decks/train/train_deck.hpp"
#include "decks/train/weight_storage.hpp"
#include "kformer/io/adapter.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/model/weight_formats.hpp"
#include "kformer/text/tokenizer.hpp"

namespace kformer::drivers {

/// The checkpoint of a deck, checked against its own model description.
/// \throws FileError if a file cannot be read or does not match the model
Checkpoint open_checkpoint(const WeightsTable& weights);

/// Refuses ranks that do not divide the extents of a model, or that would share quantised blocks of its checkpoint: of a
/// checkpoint a deck alone knows neither. Blocks lie in rows; the scales of NF4 are of a whole matrix.
/// \param checkpoint null for random weights
/// \param program    with which the message begins
/// \throws NotSupported
void require_divided(const PlanParallelTable& table, const LanguageModelTable& model,
                     const Checkpoint* checkpoint, std::string_view program);

/// An adapter in a folder or a GGUF file, checked against the model that it is for.
/// \throws FileError if a file cannot be read or does not match the model
AdapterCheckpoint open_adapter(const std::filesystem::path& path, const LlamaConfig& model);

/// Identifies the weights of a checkpoint by a few bytes of each, so that it costs little: what trains a model changes all of
/// them.
std::string fingerprint_of(const Checkpoint& checkpoint);

/// Identifies what a checkpoint has in it: the model and its weights, as `fingerprint_of` does.
std::string contents_of(const Checkpoint& checkpoint);

/// Identifies what an adapter has in it: its configuration and all of its numbers.
/// \param model what it adapts
std::string contents_of(const AdapterCheckpoint& adapter, const LlamaConfig& model);

/// Ranks and scales by map: "q_proj 16 x 2".
std::string adapter_text(const LoraConfig& lora);

/// The weights of a training whose adapters leave them as they are.
struct FrozenWeights {
  WeightFormats formats;          ///< of projections that stay quantised
  std::size_t staging_bytes = 0;  ///< of the largest weight that is expanded or quantised when it is made
};

/// Those of a checkpoint, or of random weights.
/// \param checkpoint null for random weights
/// \param model      the model
/// \param storage    the format that a deck asks for
/// \param keep       whether weights stay as the checkpoint has them; otherwise they are dense
/// \param dtype      of random weights
/// \throws NotSupported if the checkpoint has projections in another format
FrozenWeights frozen_weights(const Checkpoint* checkpoint, const LlamaConfig& model, WeightStorage storage,
                             bool keep, DType dtype);

/// The tokenizer of a deck: the one it names, or the one beside the checkpoint.
/// \throws FileError if a file cannot be read, or there is none
std::unique_ptr<const Tokenizer> open_tokenizer(const TokenizerTable& table, const Checkpoint& checkpoint);

}  // namespace kformer::drivers
