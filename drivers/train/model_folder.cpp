// SPDX-License-Identifier: MIT
#include "train/model_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "io/atomic_file.hpp"
#include "io/checkpoint/install.hpp"
#include "io/mapped_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

constexpr const char *staging_name = ".kformer-train.part", *config_name = "config.json",
                     *weights_name = "model.safetensors";

[[noreturn]] void refuse(const std::string& key, const fs::path& path, const std::string& reason) {
  throw FileError(fmt::format("output.{} '{}' {}", key, path.string(), reason));
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  Impl::replace_file(path, std::span(&bytes, 1));
}

// Remains of a killed run do not count.
bool holds_nothing(const fs::path& folder) {
  return std::ranges::all_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    return entry.path().filename() == staging_name;
  });
}

fs::path resolved(const fs::path& path) {
  const fs::path whole = fs::weakly_canonical(fs::absolute(path));
  return whole.has_filename() ? whole : whole.parent_path();
}

bool is_or_contains(const fs::path& folder, const fs::path& other) {
  const fs::path inner = resolved(other);
  return std::ranges::mismatch(folder, inner).in1 == folder.end();
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      return "float32";
  }
}

std::string config_text(const LanguageModelTable& model, DType dtype) {
  auto config = nlohmann::ordered_json::parse(model_config_json(model));
  config["torch_dtype"] = torch_name(dtype);
  return config.dump(2) + "\n";
}

// The configuration, without which a folder is not an adapter, goes first and comes last.
void install_adapter(const fs::path& staging, const fs::path& folder) {
  fs::remove(folder / adapter_config_name);
  fs::remove(folder / gguf_adapter_name);  // it would be another one's
  for (const char* name : {adapter_weights_name, gguf_adapter_name, adapter_config_name})
    if (fs::exists(staging / name)) fs::rename(staging / name, folder / name);
}

}  // namespace

ModelFolder::ModelFolder(std::string key, fs::path path, bool replace,
                         const std::vector<std::pair<fs::path, std::string>>& others)
    : m_key(std::move(key)) {
  try {
    m_path = resolved(path);
    for (const auto& [folder, name] : others)
      if (is_or_contains(m_path, folder))
        refuse(m_key, m_path,
               fmt::format("is or contains {}, '{}'; name a folder of its own", name, folder.string()));
    if (!fs::exists(m_path)) return;
    if (!fs::is_directory(m_path)) refuse(m_key, m_path, "is not a folder");
    if (!replace && !holds_nothing(m_path))
      refuse(m_key, m_path,
             fmt::format(
                 "exists and is not empty; output.overwrite = true replaces {} {} there and leaves other files",
                 m_key == "model" ? "a" : "an", m_key));
  } catch (const fs::filesystem_error& error) {
    refuse(m_key, path, "cannot be written: " + error.code().message());
  }
}

fs::path ModelFolder::staging() const { return m_path / staging_name; }

void ModelFolder::try_out() {
  std::error_code error, ignored;
  // The lock first: another run may be about to remove what it made.
  fs::create_directories(m_path.parent_path(), ignored);
  m_lock = std::make_unique<Impl::RunLock>(m_path);
  const bool made = !fs::exists(m_path, ignored);
  fs::create_directories(staging(), error);
  if (error) refuse(m_key, m_path, "cannot be written: " + error.message());
  fs::remove_all(staging(), ignored);
  if (made) fs::remove(m_path, ignored);
}

void ModelFolder::with_staging(const std::function<void()>& make) const {
  std::error_code ignored;
  try {
    fs::remove_all(staging());
    fs::create_directories(staging());
    make();
    fs::remove_all(staging());
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(staging(), ignored);
    refuse(m_key, m_path, "cannot be written: " + error.code().message());
  } catch (const FileError&) {
    fs::remove_all(staging(), ignored);
    throw;
  }
}

void ModelFolder::write(Learner& learner, const LanguageModelTable& model, DType dtype,
                        const TokenizerFiles& tokenizer) const {
  const std::string config = config_text(model, dtype);
  with_staging([&] {
    learner.save_weights(staging() / weights_name);
    write_file(staging() / config_name, std::as_bytes(std::span(config)));
    for (const auto& [name, from] : tokenizer.files) write_file(staging() / name, Impl::map_file(from).bytes());
    Impl::install_checkpoint(staging(), m_path, tokenizer.files.empty());
  });
}

void ModelFolder::write_adapter(Learner& learner, const AdapterDescription& description, bool gguf) const {
  with_staging([&] {
    if (gguf) learner.save_gguf_adapter(staging() / gguf_adapter_name);
    learner.save_adapter(staging(), description);
    install_adapter(staging(), m_path);
  });
}

}  // namespace kformer::drivers
