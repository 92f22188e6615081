// SPDX-License-Identifier: MIT
#include "kformer/io/checkpoint.hpp"

#include <cstring>

#include "io/checkpoint/contents.hpp"
#include "io/checkpoint/shards.hpp"
#include "io/checkpoint/sources.hpp"
#include "io/mapped_file.hpp"
#include "io/nearest_name.hpp"
#include "kformer/core/error.hpp"

namespace kformer {
namespace {

namespace fs = std::filesystem;

bool begins_as_gguf(const fs::path& path) {
  const Impl::MappedFile file = Impl::map_file(path);
  return file.size >= 4 && std::memcmp(file.start.get(), "GGUF", 4) == 0;
}

CheckpointFormat format_of(const fs::path& path) {
  if (fs::is_directory(path) || path.extension() == ".safetensors" ||
      path.string().ends_with(Impl::index_suffix))
    return CheckpointFormat::safetensors;
  if (path.extension() == ".gguf" || begins_as_gguf(path)) return CheckpointFormat::gguf;
  throw FileError("'" + path.string() +
                  "' is not a checkpoint: expected a folder with config.json, a safetensors file beside "
                  "config.json, or a GGUF file");
}

/// Both formats are read in the same way, and differ by what was found.
void require_format(const Impl::CheckpointContents& contents, CheckpointFormat wanted) {
  if (wanted == CheckpointFormat::automatic || wanted == contents.format) return;
  throw FileError("'" + contents.source + "' has " +
                  (wanted == CheckpointFormat::packed
                       ? "no quantised weights: its format is \"safetensors\", not \"packed\""
                       : "quantised weights: its format is \"packed\", not \"safetensors\""));
}

[[noreturn]] void refuse_name(const Impl::CheckpointContents& contents, std::string_view name) {
  throw FileError("'" + contents.source + "' has no tensor '" + std::string(name) + "'" +
                  Impl::suggest_names(name, contents.names()));
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path, CheckpointFormat format) {
  try {
    if (!fs::exists(path)) throw FileError("cannot read '" + path.string() + "': no such file or folder");
    const CheckpointFormat read_as = format == CheckpointFormat::automatic ? format_of(path) : format;
    auto contents = read_as == CheckpointFormat::gguf ? Impl::read_gguf_checkpoint(path)
                                                      : Impl::read_safetensors_checkpoint(path);
    require_format(*contents, format);
    return Checkpoint(std::move(contents));
  } catch (const fs::filesystem_error& error) {
    throw FileError("cannot read '" + path.string() + "': " + error.code().message());
  }
}

const LanguageModelTable& Checkpoint::model() const { return m_contents->model; }

CheckpointFormat Checkpoint::format() const { return m_contents->format; }

const fs::path& Checkpoint::folder() const { return m_contents->folder; }

const GgufFile* Checkpoint::gguf() const { return m_contents->gguf ? &*m_contents->gguf : nullptr; }

std::vector<std::string> Checkpoint::names() const { return m_contents->names(); }

const CheckpointTensor* Checkpoint::find(std::string_view name) const { return m_contents->find(name); }

void Checkpoint::release(std::string_view name) const { m_contents->release(name); }

const CheckpointTensor& Checkpoint::at(std::string_view name) const {
  if (const CheckpointTensor* tensor = find(name)) return *tensor;
  refuse_name(*m_contents, name);
}

TensorLayout Checkpoint::layout(std::string_view name) const {
  if (const auto layout = m_contents->layout(name)) return *layout;
  refuse_name(*m_contents, name);
}

}  // namespace kformer
