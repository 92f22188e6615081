// SPDX-License-Identifier: MIT
#include "train/model_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "io/atomic_file.hpp"
#include "io/checkpoint/install.hpp"
#include "io/mapped_file.hpp"
#include "io/torch_name.hpp"

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

constexpr const char *config_name = "config.json", *weights_name = "model.safetensors";

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  Impl::replace_file(path, std::span(&bytes, 1));
}

bool is_or_contains(const fs::path& folder, const fs::path& other) {
  const fs::path inner = resolved_folder(other);
  return std::ranges::mismatch(folder, inner).in1 == folder.end();
}

std::string config_text(const LanguageModelTable& model, DType dtype) {
  auto config = nlohmann::ordered_json::parse(model_config_json(model));
  config["torch_dtype"] = Impl::torch_name(dtype);
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

ModelFolder::ModelFolder(const std::string& key, const fs::path& path, bool replace,
                         const std::vector<std::pair<fs::path, std::string>>& others)
    : m_folder("output." + key, path, "kformer-train") {
  for (const auto& [folder, name] : others)
    if (is_or_contains(m_folder.path(), folder))
      m_folder.refuse(fmt::format("is or contains {}, '{}'; name a folder of its own", name, folder.string()));
  m_folder.require_usable(replace,
                          fmt::format("output.overwrite = true replaces {} {} there and leaves other files",
                                      key == "model" ? "a" : "an", key));
}

void ModelFolder::try_out() {
  // The lock first: another run may be about to remove what it made.
  m_folder.claim();
  m_folder.make();
  m_folder.drop();
}

void ModelFolder::write(Learner& learner, const LanguageModelTable& model, DType dtype,
                        const TokenizerFiles& tokenizer) const {
  const std::string config = config_text(model, dtype);
  const fs::path staging = m_folder.staging();
  m_folder.fill([&] {
    learner.save_weights(staging / weights_name);
    write_file(staging / config_name, std::as_bytes(std::span(config)));
    for (const auto& [name, from] : tokenizer.files) write_file(staging / name, Impl::map_file(from).bytes());
    Impl::install_checkpoint(staging, m_folder.path(), tokenizer.files.empty());
  });
}

void ModelFolder::write_adapter(Learner& learner, const AdapterDescription& description, bool gguf) const {
  const fs::path staging = m_folder.staging();
  m_folder.fill([&] {
    if (gguf) learner.save_gguf_adapter(staging / gguf_adapter_name);
    learner.save_adapter(staging, description);
    install_adapter(staging, m_folder.path());
  });
}

}  // namespace kformer::drivers
