// SPDX-License-Identifier: MIT
#include "train/tokenizer_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

constexpr const char *json_name = "tokenizer.json", *model_name = "tokenizer.model";
// Files that hold a vocabulary themselves.
constexpr std::array<std::string_view, 5> vocabularies{json_name, model_name, "vocab.json", "merges.txt",
                                                       "added_tokens.json"};

// What the published names have of a folder, without those that `skip` names.
std::vector<std::pair<std::string, fs::path>> files_in(const fs::path& folder, auto skip) {
  std::vector<std::pair<std::string, fs::path>> files;
  for (const std::string_view name : PackedCheckpointWriter::file_names()) {
    std::error_code ignored;
    if (name == "config.json" || name == "model.safetensors" || skip(name)) continue;
    if (fs::is_regular_file(folder / name, ignored)) files.emplace_back(name, folder / name);
  }
  return files;
}

// A file of any name; the vocabularies beside it may be of another tokenizer.
std::vector<std::pair<std::string, fs::path>> files_of(const fs::path& file, const char* published) {
  const bool named = file.filename() == published;
  auto files = files_in(file.parent_path(), [&](std::string_view name) {
    if (name == json_name || name == model_name) return true;
    return !named && std::ranges::count(vocabularies, name) > 0;
  });
  files.emplace_back(published, file);
  return files;
}

TokenizerFiles inside(const fs::path& gguf) {
  return {{},
          fmt::format("the tokenizer is inside '{}' and is not written to output.model; programs that read the "
                      "model need tokenizer.path = \"{}\"",
                      gguf.filename().string(), gguf.string())};
}

}  // namespace

TokenizerFiles tokenizer_files(const TokenizerTable& table, const Checkpoint* checkpoint) {
  using enum TokenizerFormat;
  const bool chosen = table.format == hf || table.format == sentencepiece;
  if (table.format == byte) return {};
  if (table.path.empty()) {
    if (checkpoint == nullptr) return {};
    if (checkpoint->gguf() != nullptr && !chosen) return inside(checkpoint->gguf()->source());
    return {files_in(checkpoint->folder(), [](std::string_view) { return false; }), {}};
  }
  std::error_code ignored;
  if (fs::is_directory(table.path, ignored))
    return {files_in(table.path, [](std::string_view) { return false; }), {}};
  const fs::path extension = table.path.extension();
  if (table.format == gguf || (!chosen && extension == ".gguf")) return inside(table.path);
  const bool json = chosen ? table.format == hf : extension == ".json";
  return {files_of(table.path, json ? json_name : model_name), {}};
}

}  // namespace kformer::drivers
