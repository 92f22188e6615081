// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kformer/io/checkpoint.hpp"
#include "kformer/io/safetensors.hpp"

namespace kformer::Impl {

/// The contents of a checkpoint in any format.
class CheckpointContents {
 public:
  /// \param path name of the checkpoint in error texts
  explicit CheckpointContents(const std::filesystem::path& path) : source(path.string()) {}

  std::string source;
  std::filesystem::path folder;
  CheckpointFormat format = CheckpointFormat::automatic;
  LanguageModelTable model;
  std::vector<SafetensorsFile> files;  ///< keep the tensors of safetensors files mapped
  std::optional<GgufFile> gguf;

  /// Adds a tensor.
  /// \param interleaved_heads heads whose rows are in the order of interleaved RoPE, 0 if they are not
  /// \returns false if the name is taken
  bool add(const std::string& name, CheckpointTensor tensor, std::size_t interleaved_heads = 0);
  /// Replaces a tensor by one whose bytes `arranged` makes on first access.
  void replace(const std::string& name, CheckpointTensor tensor,
               std::function<std::vector<std::byte>()> arranged);
  /// Takes a tensor out.
  void remove(const std::string& name) { m_slots.erase(name); }

  std::vector<std::string> names() const;
  /// The tensor `name` with its bytes in published order, or null.
  const CheckpointTensor* find(std::string_view name) const;
  /// The same without touching the bytes: for shapes and types.
  const CheckpointTensor* find_layout(std::string_view name) const;
  /// What the tensor `name` is, or nothing.
  std::optional<TensorLayout> layout(std::string_view name) const;
  /// Takes the pages of the tensor out of memory, if its bytes are those of a mapped file.
  void release(std::string_view name) const;

 private:
  struct Slot {
    CheckpointTensor tensor;
    std::function<std::vector<std::byte>()> arranged;  ///< its bytes, where the file has them in another order
    std::once_flag made;
    std::vector<std::byte> bytes;  ///< what `arranged` returned, on first access
  };

  // Access may rearrange the bytes of a tensor; no caller has seen them before.
  mutable std::map<std::string, Slot, std::less<>> m_slots;
};

}  // namespace kformer::Impl
