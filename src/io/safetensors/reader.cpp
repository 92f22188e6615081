// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "io/key_names.hpp"
#include "io/mapped_file.hpp"
#include "io/nearest_name.hpp"
#include "io/numbers.hpp"
#include "io/safetensors/header.hpp"
#include "io/safetensors/layout.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/stored_type.hpp"
#include "kformer/io/safetensors.hpp"

namespace kformer {
namespace {

using Named = std::pair<const std::string, Impl::HeaderEntry>;

[[noreturn]] void refuse(const std::string& source, const std::string& reason) {
  throw FileError("'" + source + "' is not a valid safetensors file: " + reason);
}

/// The JSON text of the header; the data follow directly.
std::string_view header_text(std::span<const std::byte> file, const std::string& source) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length))
    refuse(source, "it has " + std::to_string(file.size()) + " bytes, fewer than 8");
  std::memcpy(&length, file.data(), sizeof(length));
  file = file.subspan(sizeof(length));
  if (length > Impl::largest_header) {
    refuse(source, "its header claims " + std::to_string(length) + " bytes, more than the format's " +
                       std::to_string(Impl::largest_header));
  }
  if (length > file.size()) {
    refuse(source, "its header claims " + std::to_string(length) + " bytes, but only " +
                       std::to_string(file.size()) + " follow; is the file truncated?");
  }
  if (length == 0 || file[0] != std::byte{'{'}) refuse(source, "its header does not start with '{'");
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(length)};
}

std::string shape_text(const std::vector<std::size_t>& shape) {
  std::string text = "[";
  for (const std::size_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

void check_size(const Named& tensor, const std::string& source) {
  const auto& [name, entry] = tensor;
  const std::string what =
      "tensor '" + name + "' of type " + entry.dtype + " and shape " + shape_text(entry.shape);
  if (!Impl::element_bits(entry.dtype))
    refuse(source, "tensor '" + name + "' has the unknown type '" + entry.dtype + "'");
  const auto bytes = Impl::tensor_bytes(entry.dtype, entry.shape);
  if (!bytes) refuse(source, what + " is too large to address");
  const std::size_t begin = entry.offsets[0];
  const std::size_t end = entry.offsets[1];
  if (end < begin || end - begin != *bytes) {
    refuse(source, what + " needs " + std::to_string(*bytes) + " bytes, but its data_offsets are [" +
                       std::to_string(begin) + "," + std::to_string(end) + "]");
  }
}

/// The tensors must tile the data: no gaps, no overlaps, no rest.
void check_coverage(const Impl::Header& header, std::size_t data_size, const std::string& source) {
  std::vector<const Named*> by_place;
  for (const auto& tensor : header.tensors) by_place.push_back(&tensor);
  std::sort(by_place.begin(), by_place.end(),
            [](const Named* a, const Named* b) { return a->second.offsets < b->second.offsets; });
  std::size_t end = 0;
  for (const Named* tensor : by_place) {
    const auto& offsets = tensor->second.offsets;
    if (offsets[0] != end) {
      refuse(source, "the data of tensor '" + tensor->first + "' begin at byte " + std::to_string(offsets[0]) +
                         ", expected " + std::to_string(end) + ", where the previous tensor ends");
    }
    end = offsets[1];
  }
  if (end != data_size) {
    refuse(source, "its tensors take " + std::to_string(end) + " bytes, but " + std::to_string(data_size) +
                       (end > data_size ? " are there; is the file truncated?" : " are there"));
  }
}

}  // namespace

std::size_t TensorEntry::size() const {
  std::size_t count = 1;
  for (const std::size_t extent : shape) count *= extent;
  return count;
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  Impl::MappedFile mapped = Impl::map_file(path);
  SafetensorsFile file = parse(mapped.bytes(), path.string());
  file.m_mapping = std::move(mapped.start);
  return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string source) {
  const std::string_view json = header_text(bytes, source);
  const auto data = bytes.subspan(sizeof(std::uint64_t) + json.size());
  Impl::Header header = Impl::parse_header(json, source);
  for (const auto& tensor : header.tensors) check_size(tensor, source);
  check_coverage(header, data.size(), source);
  SafetensorsFile file;
  for (auto& [name, entry] : header.tensors) {
    const auto view = data.subspan(entry.offsets[0], entry.offsets[1] - entry.offsets[0]);
    file.m_tensors.emplace(name, TensorEntry{std::move(entry.dtype), std::move(entry.shape), view});
  }
  file.m_metadata = std::move(header.metadata);
  file.m_source = std::move(source);
  return file;
}

std::vector<std::string> SafetensorsFile::names() const { return Impl::key_names(m_tensors); }

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto place = m_tensors.find(name);
  return place == m_tensors.end() ? nullptr : &place->second;
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  throw FileError("'" + m_source + "' has no tensor '" + std::string(name) + "'" +
                  Impl::suggest_names(name, names()));
}

void SafetensorsFile::release(std::string_view name) const {
  const TensorEntry& entry = at(name);
  if (m_mapping) Impl::release_pages(entry.bytes);
}

std::vector<double> SafetensorsFile::read_f64(std::string_view name) const {
  const TensorEntry& entry = at(name);
  if (auto numbers = Impl::numbers_of(stored_type_named(entry.dtype), entry.bytes)) return *std::move(numbers);
  throw FileError("'" + m_source + "': tensor '" + std::string(name) + "' is of type " + entry.dtype +
                  ", expected F64, F32, F16 or BF16");
}

}  // namespace kformer
