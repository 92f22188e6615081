// SPDX-License-Identifier: MIT
#include "train/model_folder.hpp"

#include <fmt/format.h>

#include <fstream>

#include "kformer/core/error.hpp"
#include "kformer/io/checkpoint.hpp"

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& reason) {
  throw FileError(fmt::format("output.model '{}' {}", path.string(), reason));
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw FileError(fmt::format("cannot write '{}'", path.string()));
}

// Beside the folder, so that a rename suffices.
fs::path beside(const fs::path& path, const char* suffix) {
  return path.parent_path() / ("." + path.filename().string() + suffix);
}

}  // namespace

ModelFolder::ModelFolder(fs::path path, bool replace) : m_path(fs::absolute(path).lexically_normal()) {
  if (!m_path.has_filename()) m_path = m_path.parent_path();
  std::error_code error;
  if (fs::exists(m_path, error)) {
    if (!fs::is_directory(m_path, error)) refuse(m_path, "is not a folder");
    if (!replace && !fs::is_empty(m_path, error))
      refuse(m_path, "exists and is not empty; output.overwrite = true replaces it");
  }
  const fs::path part = beside(m_path, ".part");
  fs::create_directories(part, error);
  if (error) refuse(m_path, "cannot be written: " + error.message());
  fs::remove_all(part, error);
}

void ModelFolder::write(Learner& learner, const LanguageModelTable& model, const fs::path& tokenizer) const {
  const fs::path part = beside(m_path, ".part"), old = beside(m_path, ".old");
  try {
    fs::remove_all(part);
    fs::create_directories(part);
    learner.save_weights(part / "model.safetensors");
    write_text(part / "config.json", model_config_json(model));
    for (const std::string_view name : PackedCheckpointWriter::file_names())
      if (!tokenizer.empty() && !fs::exists(part / name) && fs::is_regular_file(tokenizer / name))
        fs::copy_file(tokenizer / name, part / name);
    fs::remove_all(old);
    if (fs::exists(m_path)) fs::rename(m_path, old);
    fs::rename(part, m_path);
    fs::remove_all(old);
  } catch (const fs::filesystem_error& error) {
    refuse(m_path, "cannot be written: " + error.code().message());
  }
}

}  // namespace kformer::drivers
