// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/atomic_file.hpp"
#include "io/checkpoint/packed.hpp"
#include "io/gguf/layout.hpp"
#include "io/mapped_file.hpp"
#include "io/torch_name.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/stored_type.hpp"
#include "kformer/io/checkpoint.hpp"

namespace kformer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view weights_file = "model.safetensors", config_file = "config.json";
constexpr std::string_view tokenizer_files[] = {
    "tokenizer.json",     "tokenizer.model",   "tokenizer_config.json",   "vocab.json",
    "merges.txt",         "added_tokens.json", "special_tokens_map.json", "generation_config.json",
    "chat_template.jinja"};

void copy_if_there(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  if (!fs::is_regular_file(from, ignored)) return;
  const Impl::MappedFile file = Impl::map_file(from);
  const std::span<const std::byte> bytes = file.bytes();
  Impl::replace_file(to, std::span(&bytes, 1));
}

void write_text(const fs::path& path, const std::string& text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  Impl::replace_file(path, std::span(&bytes, 1));
}

using Tensors = std::map<std::string, CheckpointTensor>;

bool is_dense(const Tensors& tensors) {
  return std::ranges::none_of(tensors,
                              [](const auto& t) { return quantized_format_of(t.second.type).has_value(); });
}

// The type that holds all numbers; for BF16 beside F16 this is F32.
DType widest(const Tensors& tensors) {
  std::optional<DType> all;
  for (const auto& [name, tensor] : tensors) {
    const DType dtype = std::get<DType>(tensor.type);
    if (!all || dtype == DType::f64) all = dtype;
    if (*all != dtype && *all != DType::f64) all = DType::f32;
  }
  return all.value_or(DType::f32);
}

// What other programs read with numbers must not be told that these are quantised, or of another type.
std::string dense_config(const fs::path& from, const Tensors& tensors) {
  const Impl::MappedFile file = Impl::map_file(from);
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  auto config = nlohmann::ordered_json::parse(text, text + file.bytes().size());
  config.erase("quantization_config");
  for (const char* key : {"torch_dtype", "dtype"})
    if (config.contains(key)) config[key] = Impl::torch_name(widest(tensors));
  return config.dump(2) + "\n";
}

}  // namespace

PackedCheckpointWriter::PackedCheckpointWriter(Checkpoint source) : m_source(std::move(source)) {}

void PackedCheckpointWriter::add(const std::string& name, const CheckpointTensor& tensor) {
  const std::string what = "kformer::PackedCheckpointWriter::add: tensor '" + name + "' ";
  if (!Impl::tensor_block(tensor.type))
    throw Error(what + "is of type '" + to_string(tensor.type) +
                "', expected F64, F32, F16, BF16 or a quantised type");
  if (quantized_format_of(tensor.type) && tensor.shape.size() != 2)
    throw Error(what + "is quantised and has " + std::to_string(tensor.shape.size()) +
                " extents, expected 2: (out, in)");
  const auto bytes = Impl::tensor_bytes(tensor.type, tensor.shape);
  if (!bytes || *bytes != tensor.bytes.size())
    throw Error(what + "has " + std::to_string(tensor.bytes.size()) + " bytes, expected " +
                (bytes ? std::to_string(*bytes) : "more than can be addressed"));
  if (!m_tensors.emplace(name, tensor).second) throw Error(what + "is added twice");
}

void PackedCheckpointWriter::write(const fs::path& folder) const {
  std::error_code reason;
  fs::create_directories(folder, reason);
  if (reason) throw FileError("cannot make the folder '" + folder.string() + "': " + reason.message());
  const fs::path source = m_source.folder().empty() ? "." : m_source.folder();
  if (m_source.gguf() == nullptr && fs::equivalent(folder, source, reason))
    throw Error("kformer::PackedCheckpointWriter::write: folder '" + folder.string() +
                "' is the source folder and would be overwritten; name another");
  SafetensorsWriter weights;
  const bool dense = is_dense(m_tensors);
  // Older releases of transformers refuse a file without it.
  if (dense) weights.metadata("format", "pt");
  for (const auto& [name, tensor] : m_tensors) {
    if (quantized_format_of(tensor.type)) {
      weights.metadata(Impl::packed_key(name), Impl::packed_text(tensor));
      weights.add(name, "U8", {tensor.bytes.size()}, tensor.bytes.data());
    } else {
      weights.add(name, to_string(tensor.type), tensor.shape, tensor.bytes.data());
    }
  }
  weights.write(folder / weights_file);
  if (m_source.gguf() != nullptr) {
    write_text(folder / config_file, model_config_json(m_source.model()));
    return;
  }
  const fs::path config = m_source.folder() / config_file;
  if (dense && fs::is_regular_file(config, reason))
    write_text(folder / config_file, dense_config(config, m_tensors));
  else
    copy_if_there(config, folder / config_file);
  for (const std::string_view name : tokenizer_files) copy_if_there(m_source.folder() / name, folder / name);
}

std::vector<std::string_view> PackedCheckpointWriter::file_names() {
  std::vector<std::string_view> names{weights_file, config_file};
  names.insert(names.end(), std::begin(tokenizer_files), std::end(tokenizer_files));
  return names;
}

}  // namespace kformer
