// SPDX-License-Identifier: MIT
#include "quantize/adapter_file.hpp"

#include <fmt/format.h>

#include "kformer/core/error.hpp"

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& reason) {
  throw FileError(fmt::format("adapter file '{}' {}", path.string(), reason));
}

}  // namespace

AdapterFile::AdapterFile(fs::path path, const fs::path& adapter, bool replace) : m_path(std::move(path)) {
  std::error_code ignored;
  if (!fs::exists(m_path, ignored)) return;
  if (!fs::is_regular_file(m_path, ignored)) refuse(m_path, "is not a file");
  if (fs::equivalent(m_path, adapter, ignored))
    refuse(m_path, "is the adapter that is read; name another file");
  if (!replace) refuse(m_path, "exists; --overwrite replaces it");
}

void AdapterFile::write(const AdapterCheckpoint& adapter, const LlamaConfig& model) const {
  write_gguf_adapter(m_path, model, adapter.lora(),
                     [&](const std::string& name) { return adapter.values(name); });
}

}  // namespace kformer::drivers
