// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "kformer/io/model_table.hpp"
#include "learner/learner.hpp"
#include "output/staged_folder.hpp"
#include "train/tokenizer_files.hpp"

namespace kformer::drivers {

/// The folder of the trained model or adapter, in the layout of published ones. Files that are not the model's stay as
/// they are.
class ModelFolder {
 public:
  /// Checks that the model may be there. Writes nothing.
  /// \param key     that names it, "model" or "adapter" of [output]
  /// \param path    the folder; it need not exist
  /// \param replace whether it may have a model, or other files, already
  /// \param others  folders that it must neither be nor contain, each with what it is called
  /// \throws FileError naming the path and the reason
  ModelFolder(const std::string& key, const std::filesystem::path& path, bool replace,
              const std::vector<std::pair<std::filesystem::path, std::string>>& others);

  /// Checks that files can be made there, before a training relies on it; removes what it made, except for folders
  /// above it. Keeps other runs out until the end.
  /// \throws FileError naming the path and the reason
  void try_out();

  /// Writes config.json, model.safetensors and the tokenizer's files, each atomically. It renames them when all of
  /// them are complete; meanwhile config.json is absent, so that nobody reads half a model. After `try_out`.
  /// \throws FileError naming the file and the reason; if a file cannot be made, an existing model is as it was
  void write(Learner& learner, const LanguageModelTable& model, DType dtype,
             const TokenizerFiles& tokenizer) const;

  /// Writes an adapter in PEFT's layout, in the same way; meanwhile adapter_config.json is absent.
  /// \param gguf whether to write it for llama.cpp, too: `adapter.gguf`
  /// \throws FileError naming the file and the reason; if a file cannot be made, an existing adapter is as it was
  void write_adapter(Learner& learner, const AdapterDescription& description, bool gguf) const;

  const std::filesystem::path& path() const { return m_folder.path(); }

 private:
  StagedFolder m_folder;
};

}  // namespace kformer::drivers
