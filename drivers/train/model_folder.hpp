// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "kformer/io/model_table.hpp"
#include "learner/learner.hpp"

namespace kformer::drivers {

/// The folder of the trained model, in the layout of published checkpoints. It appears complete or not at all.
class ModelFolder {
 public:
  /// Checks that `path` is usable, before a training relies on it: a folder is made beside it and removed. Missing
  /// folders above it are made.
  /// \param replace whether an existing model there may be replaced
  /// \throws FileError naming the path and the reason
  ModelFolder(std::filesystem::path path, bool replace);

  /// Writes config.json, model.safetensors and copies of the tokenizer's files.
  /// \param tokenizer folder that the tokenizer came from; empty if it has no files
  /// \throws FileError naming the file and the reason; an existing model is then as it was
  void write(Learner& learner, const LanguageModelTable& model, const std::filesystem::path& tokenizer) const;

  const std::filesystem::path& path() const { return m_path; }

 private:
  std::filesystem::path m_path;
};

}  // namespace kformer::drivers
