// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/atomic_file.hpp"
#include "io/safetensors/layout.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/safetensors.hpp"

namespace kformer {
namespace {

using Named = std::pair<const std::string, TensorEntry>;

std::vector<const Named*> in_file_order(const std::map<std::string, TensorEntry>& tensors) {
  std::vector<const Named*> ordered;
  for (const auto& tensor : tensors) ordered.push_back(&tensor);
  const auto bits = [](const Named* tensor) { return Impl::element_bits(tensor->second.dtype); };
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](const Named* a, const Named* b) { return bits(a) > bits(b); });
  return ordered;
}

/// The header's text, padded so that the data begin at a multiple of 8 bytes.
std::string header_text(const std::vector<const Named*>& ordered,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(Impl::metadata_key)] = metadata;
  std::size_t begin = 0;
  for (const Named* tensor : ordered) {
    const auto& [name, entry] = *tensor;
    const std::size_t end = begin + entry.bytes.size();
    header[name] = {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void SafetensorsWriter::metadata(const std::string& key, const std::string& value) {
  m_metadata.insert_or_assign(key, value);
}

void SafetensorsWriter::add(const std::string& name, const std::string& dtype,
                            const std::vector<std::size_t>& shape, const void* data) {
  const std::string what = "kformer::SafetensorsWriter::add: tensor '" + name + "' ";
  const auto bytes = Impl::tensor_bytes(dtype, shape);
  if (name == Impl::metadata_key) throw Error(what + "has the name reserved for the metadata");
  if (m_tensors.contains(name)) throw Error(what + "is added twice");
  if (!Impl::element_bits(dtype))
    throw Error(what + "has the unknown type '" + dtype + "', expected F64, F32, F16, ...");
  if (!bytes) throw Error(what + "is too large to address");
  m_tensors.emplace(name, TensorEntry{dtype, shape, {static_cast<const std::byte*>(data), *bytes}});
}

void SafetensorsWriter::add(const std::string& name, const std::string& dtype,
                            const std::vector<std::size_t>& shape, std::function<const void*()> data) {
  add(name, dtype, shape, nullptr);
  m_sources.emplace(name, std::move(data));
}

void SafetensorsWriter::write(const std::filesystem::path& path) const {
  const auto ordered = in_file_order(m_tensors);
  std::string header;
  try {
    header = header_text(ordered, m_metadata);
  } catch (const nlohmann::json::exception& error) {
    throw FileError("cannot write '" + path.string() +
                    "': a name or a metadata text is not UTF-8: " + error.what());
  }
  const std::uint64_t length = header.size();
  if (length > Impl::largest_header) {
    throw FileError("cannot write '" + path.string() + "': its header would take " + std::to_string(length) +
                    " bytes, more than the format's " + std::to_string(Impl::largest_header));
  }
  std::vector<Impl::ByteSource> pieces{[&] { return std::as_bytes(std::span(&length, 1)); },
                                       [&] { return std::as_bytes(std::span(header)); }};
  for (const Named* tensor : ordered) {
    const std::span<const std::byte> bytes = tensor->second.bytes;
    if (const auto source = m_sources.find(tensor->first); source != m_sources.end())
      pieces.emplace_back([&data = source->second, bytes] {
        return std::span(static_cast<const std::byte*>(data()), bytes.size());
      });
    else
      pieces.emplace_back([bytes] { return bytes; });
  }
  Impl::replace_file(path, pieces);
}

}  // namespace kformer
