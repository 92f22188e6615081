// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "kformer/io/adapter.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/model/llama_decoder.hpp"
#include "kformer/model/llama_model.hpp"

/// \file
/// Loads the weights of a checkpoint into a model, and writes them back to a file. The functions are compiled
/// for every execution space of the library. They return when the weights have arrived.

namespace kformer {

/// The formats of the model's matrices that a checkpoint stores quantised: `DecoderOptions::formats` of a
/// decoder that keeps them so.
WeightFormats quantized_weights(const Checkpoint& checkpoint);

/// Bytes of the largest weight that is quantised in the checkpoint and dense in the model, or the other way round.
std::size_t staging_bytes(const Checkpoint& checkpoint, const WeightFormats& kept);

/// Reads one tensor of a checkpoint into a dense array. Elements are converted to the array's storage type;
/// the device expands quantised blocks.
/// \param exec    the instance
/// \param tensor  what is read
/// \param to      (rows, columns) or (size), float, bf16, f16 or double; contiguous, but for the rows of a tensor that is
///                not quantised
/// \param staging as many bytes as the tensor has, if it is quantised
/// \param ledger  counts transfers: of bytes that the host does not write to the array itself
/// \throws FileError if the tensor's type cannot be converted
template <class Exec>
void load_dense(const Exec& exec, const CheckpointTensor& tensor, const TensorRef& to,
                const MemoryBlock<typename Exec::memory_space>& staging, Ledger& ledger);

/// Copies the weights of a checkpoint to the slots of a model.
/// \param exec       the instance
/// \param checkpoint has been checked against its model: `checkpoint.check_against(checkpoint.model())`
/// \param slots      `weights()` of a model, or a part of them. A weight that is dense in the checkpoint and quantised in
///                   the model is quantised on the way, by `quantize`
/// \param staging    as many bytes as `staging_bytes` says
/// \param ledger     counts transfers
/// \param stop       called between tensors; if it returns true, the rest is not written
/// \throws FileError naming the tensor that is missing, whose extents do not match the model, or that is quantised in
///         another format
template <class Exec>
void load_weights(const Exec& exec, const Checkpoint& checkpoint, const std::vector<WeightSlot>& slots,
                  const MemoryBlock<typename Exec::memory_space>& staging, Ledger& ledger,
                  const std::function<bool()>& stop = {});

/// Loads a decoder. Weights that `DecoderOptions::formats` names stay quantised; the others become T.
/// \param exec       the instance
/// \param checkpoint where they are
/// \param decoder    made with `llama_config(checkpoint.model())`
/// \param ledger     books the staging memory while the function runs, and counts transfers
/// \throws FileError naming the tensor that is missing, or whose extents do not match the model
template <class Exec, Scalar T>
void load_weights(const Exec& exec, const Checkpoint& checkpoint, LlamaDecoder<Exec, T>& decoder,
                  Ledger& ledger) {
  const auto staging = ledger.allocate(exec, MemoryClass::io, "load_weights::staging",
                                       staging_bytes(checkpoint, decoder.options().formats));
  load_weights(exec, checkpoint, decoder.weights(), staging, ledger);
}

/// Loads a model for whole sequences. Weights that `LayerOptions::formats` names stay or become quantised; the others
/// become T.
/// \param exec       the instance
/// \param checkpoint where they are
/// \param model      made with `llama_config(checkpoint.model())`
/// \param ledger     books the staging memory while the function runs, and counts transfers
/// \throws FileError naming the tensor that is missing, or whose extents do not match the model
template <class Exec, Scalar T>
void load_weights(const Exec& exec, const Checkpoint& checkpoint, LlamaModel<Exec, T>& model, Ledger& ledger) {
  const std::vector<WeightSlot> slots = model.weights();
  WeightFormats kept;
  for (const WeightSlot& slot : slots)
    if (slot.is_quantized()) kept[slot.name] = slot.quantized.format;
  const auto staging =
      ledger.allocate(exec, MemoryClass::io, "load_weights::staging", staging_bytes(checkpoint, kept));
  load_weights(exec, checkpoint, slots, staging, ledger);
}

/// Writes weights to a safetensors file under their published names, in their storage types. The file is
/// written completely or not at all.
/// \param exec       the function waits for its work before it reads the weights
/// \param parameters `parameters()` of a model or a layer
/// \param path       of the file
/// \param ledger     counts transfers; there are none from memory that the host can read
/// \throws FileError naming the file and the reason
template <class Exec>
void save_weights(const Exec& exec, std::span<const Parameter> parameters, const std::filesystem::path& path,
                  Ledger& ledger);

/// The ranks that have parts of a model.
template <class Exec>
struct WeightRanks {
  Collectives<Exec>* tensor = nullptr;  ///< those that divide weights, or null: `LlamaModel::tensor_ranks`
  Collectives<Exec>* stages = nullptr;  ///< those that divide layers, or null: `Trainer::stages`
  std::vector<Parameter> all{};  ///< with `stages`: the parameters of all of them; their memory is not read
};

/// Bytes that a rank needs in `save_weights` for the largest weight that it gathers.
/// \param parameters of this rank
/// \param ranks      that have parts of the model
template <class Exec>
std::size_t gather_bytes(std::span<const Parameter> parameters, const WeightRanks<Exec>& ranks);

/// The same for a model that ranks divide (`LayerOptions::tensor`, `TrainerOptions::pipeline`). All of them make the call;
/// the first of the first stage gathers one weight at a time and writes the file.
/// \param exec       the instance
/// \param parameters `parameters()` of all parts of the model that this rank has
/// \param path       of the file; read on the rank that writes
/// \param ledger     counts transfers
/// \param ranks      that have parts of the model
/// \param staging    as many bytes as `gather_bytes` says
/// \throws FileError naming the file and the reason
/// \throws CommunicationError if a rank does not answer in time
template <class Exec>
void save_weights(const Exec& exec, std::span<const Parameter> parameters, const std::filesystem::path& path,
                  Ledger& ledger, const WeightRanks<Exec>& ranks,
                  const MemoryBlock<typename Exec::memory_space>& staging);

/// Reads an adapter into a model.
/// \param exec     the instance
/// \param adapter  has been checked against the model: `adapter.check_against(config)`
/// \param adapters `LlamaModel::adapters()` of a model with `adapter.lora()`, or `LlamaDecoder::adapters` of one of a
///                 decoder's adapters
/// \param ledger   counts transfers
/// \throws FileError naming the tensor that is missing, has other extents, or a type that cannot be converted
template <class Exec>
void load_adapter(const Exec& exec, const AdapterCheckpoint& adapter, std::span<const Parameter> adapters,
                  Ledger& ledger);

/// Bytes of the arrays of a projection, the largest of an adapter, as elements of this type.
std::size_t merge_staging_bytes(const AdapterCheckpoint& adapter, const LlamaConfig& model, DType dtype);

/// Adds `s B A` of every adapter to the dense weight that it belongs to, rounded once; with magnitudes the weight becomes
/// `m/n ⊙ (W + s B A)`, with n the norms of the rows of W + s B A.
/// \param exec    the instance
/// \param adapter has been checked against the model: `adapter.check_against(config)`
/// \param slots   the weights of the model, loaded; none that an adapter belongs to stays quantised
/// \param staging as many bytes as `merge_staging_bytes` says
/// \param ledger  counts transfers
/// \param ranks   that divide the weights, all of which make the call, or null: `LlamaDecoder::tensor_ranks`
/// \throws NotSupported naming a weight that has an adapter and stays quantised
template <class Exec>
void merge_adapter(const Exec& exec, const AdapterCheckpoint& adapter, const std::vector<WeightSlot>& slots,
                   const MemoryBlock<typename Exec::memory_space>& staging, Ledger& ledger,
                   Collectives<Exec>* ranks = nullptr);

/// Writes adapters as llama.cpp reads them: `write_gguf_adapter`.
/// \param exec     the function waits for its work before it reads the adapters
/// \param adapters `LlamaModel::adapters()`
/// \param lora     their ranks and scales
/// \param model    what they adapt
/// \param path     of the file
/// \param ledger   counts transfers
/// \throws NotSupported if ranks divide the adapters
/// \throws FileError naming the file and the reason
template <class Exec>
void save_gguf_adapter(const Exec& exec, std::span<const Parameter> adapters, const LoraConfig& lora,
                       const LlamaConfig& model, const std::filesystem::path& path, Ledger& ledger);

/// Writes adapters in the layout of PEFT: `adapter_config.json`, and `adapter_model.safetensors` in their storage types.
/// Each file is written completely or not at all, the configuration last.
/// \param exec        the function waits for its work before it reads the adapters
/// \param adapters    `LlamaModel::adapters()`
/// \param lora        their ranks and scales
/// \param description of the configuration
/// \param folder      an existing folder
/// \param ledger      counts transfers
/// \param ranks       that have other parts of the adapters, all of which make the call: the first writes, and reads the
///                    folder
/// \param staging     as many bytes as `gather_bytes` says
/// \throws FileError naming the file and the reason
template <class Exec>
void save_adapter(const Exec& exec, std::span<const Parameter> adapters, const LoraConfig& lora,
                  const AdapterDescription& description, const std::filesystem::path& folder, Ledger& ledger,
                  const WeightRanks<Exec>& ranks = {},
                  const MemoryBlock<typename Exec::memory_space>& staging = {});

}  // namespace kformer
