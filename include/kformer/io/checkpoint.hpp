// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kformer/core/types/checkpoint_format.hpp"
#include "kformer/io/checkpoint_tensor.hpp"
#include "kformer/io/gguf.hpp"
#include "kformer/io/model_table.hpp"

/// \file
/// Published checkpoints: the model, and its weights under the names of the hubs. docs/checkpoints.md defines
/// what is read and what is refused.

namespace kformer {

namespace Impl {
class CheckpointContents;
}

/// A checkpoint of a language model, open for reading.
///
/// In every file format, tensors have the names and the layout of the hubs: `model.embed_tokens.weight`,
/// `model.layers.0.self_attn.q_proj.weight`, …, `model.norm.weight`, `lm_head.weight`; matrices are (out, in),
/// and the rows of q and k are ordered for half-split RoPE. The bytes are those of the mapped files; only rows
/// that a GGUF file has in another order, and matrices that bitsandbytes wrote, are copied, on first access. Copies of the object share
/// everything. Reading is safe from several threads.
class Checkpoint {
 public:
  /// Opens and checks the checkpoint at `path`. It does not check that the tensors are those of the model;
  /// check_against() does.
  /// \throws FileError naming the file, the key or tensor, and what was expected
  static Checkpoint open(const std::filesystem::path& path,
                         CheckpointFormat format = CheckpointFormat::automatic);

  /// The model that the checkpoint describes.
  const LanguageModelTable& model() const;
  /// The storage format; never `automatic`.
  CheckpointFormat format() const;
  /// The folder of config.json and the tokenizer; for a GGUF file, its folder.
  const std::filesystem::path& folder() const;
  /// The GGUF file, whose metadata have the tokenizer, or null for other formats.
  const GgufFile* gguf() const;

  /// The names of all tensors, sorted.
  std::vector<std::string> names() const;
  /// The tensor `name`, or null.
  const CheckpointTensor* find(std::string_view name) const;
  /// The tensor `name`.
  /// \throws FileError with similar names if there is none
  const CheckpointTensor& at(std::string_view name) const;
  /// Type, extents and size of the tensor `name`, for callers that do not read it: nothing is copied.
  /// \throws FileError with similar names if there is none
  TensorLayout layout(std::string_view name) const;
  /// Takes the bytes of tensor `name` out of the memory of the process, for callers that have copied them. They stay valid:
  /// their next access reads the file again. Bytes that are not those of the file stay. Does nothing without such a tensor.
  /// Safe while others read.
  void release(std::string_view name) const;

  /// Checks that every tensor of `model` is present with its shape, that only matrices are quantised and the
  /// others are F64, F32, F16 or BF16, and that there is no bias and no normalisation inside a layer that the
  /// model would ignore. Other additional tensors are allowed.
  /// \throws FileError listing all faults together
  void check_against(const LanguageModelTable& model) const;

 private:
  explicit Checkpoint(std::shared_ptr<const Impl::CheckpointContents> contents)
      : m_contents(std::move(contents)) {}

  std::shared_ptr<const Impl::CheckpointContents> m_contents;
};

/// The tensors of a layer by their published names without "model.layers.<n>.", with their shapes.
/// \param layer its extents and options, complete
std::map<std::string, std::vector<std::size_t>> layer_tensor_shapes(const ModelTable& layer);

/// The tensors of a model by their published names, with their shapes; without `lm_head.weight` if it is tied.
std::map<std::string, std::vector<std::size_t>> model_tensor_shapes(const LanguageModelTable& model);

/// Collects the tensors of a packed checkpoint and writes them into a folder, with the model's config.json and,
/// where they exist, the files of the tokenizer. If none of them is quantised, this is a folder as others publish it:
/// config.json then loses `quantization_config`, and its `torch_dtype` is the type that holds all numbers.
class PackedCheckpointWriter {
 public:
  /// \param source the checkpoint whose model is written; its tensors are not added automatically
  explicit PackedCheckpointWriter(Checkpoint source);

  /// Adds a tensor, quantised or not. Its bytes are read by write(), not now: they, and their checkpoint,
  /// must stay valid until then.
  /// \throws Error if the name is taken, the type is unknown, a quantised tensor is not a matrix, or the number
  ///         of bytes does not match the type and shape
  void add(const std::string& name, const CheckpointTensor& tensor);

  /// Writes model.safetensors, config.json and copies of the tokenizer's files, making the folder if needed.
  /// \throws FileError naming the file and the reason; Error if `folder` is the source folder
  ///         and its files would be overwritten
  void write(const std::filesystem::path& folder) const;

  /// The names of all files that write() can make, whatever the source.
  static std::vector<std::string_view> file_names();

 private:
  Checkpoint m_source;
  std::map<std::string, CheckpointTensor> m_tensors;
};

}  // namespace kformer
