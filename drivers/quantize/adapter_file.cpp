// SPDX-License-Identifier: MIT
#include "quantize/adapter_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "kformer/core/error.hpp"

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& reason) {
  throw FileError(fmt::format("adapter file '{}' {}", path.string(), reason));
}

// What checkpoints and adapters have in their folders. A GGUF file there may be an adapter that was written before.
bool may_be_read(const fs::path& file) {
  constexpr std::array<std::string_view, 5> extensions{".safetensors", ".json", ".model", ".txt", ".jinja"};
  return std::ranges::find(extensions, file.extension().string()) != extensions.end();
}

// Whether the file is `source`, or one of its files, if that is a folder. Links count as what they lead to.
bool is_read(const fs::path& path, const fs::path& source) {
  std::error_code ignored;
  if (fs::equivalent(path, source, ignored)) return true;
  for (fs::directory_iterator file(source, ignored), end; file != end; file.increment(ignored))
    if (may_be_read(file->path()) && fs::equivalent(path, file->path(), ignored)) return true;
  return false;
}

}  // namespace

AdapterFile::AdapterFile(fs::path path, const AdapterCheckpoint& adapter, const std::vector<fs::path>& sources,
                         bool replace)
    : m_path(std::move(path)), m_adapter(adapter) {
  if (m_adapter.lora().magnitudes)
    refuse(m_path, "cannot have the magnitudes of the adapter (DoRA); merge it into the weights");
  std::error_code ignored;
  if (m_path.has_parent_path() && !fs::is_directory(m_path.parent_path(), ignored))
    refuse(m_path, fmt::format("cannot be written: there is no folder '{}'", m_path.parent_path().string()));
  if (!fs::exists(m_path, ignored)) return;
  if (!fs::is_regular_file(m_path, ignored)) refuse(m_path, "is not a file");
  for (const fs::path& source : sources)
    if (is_read(m_path, source)) refuse(m_path, "is a file that is read; name another file");
  if (!replace) refuse(m_path, "exists; --overwrite replaces it");
}

void AdapterFile::write(const LlamaConfig& model) const {
  write_gguf_adapter(m_path, model, m_adapter.lora(),
                     [&](const std::string& name) { return m_adapter.values(name); });
}

}  // namespace kformer::drivers
