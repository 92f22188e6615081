// SPDX-License-Identifier: MIT
#include <algorithm>
#include <vector>

#include "io/gguf/layout.hpp"
#include "io/gguf/values.hpp"
#include "io/mapped_file.hpp"
#include "kformer/io/gguf.hpp"

namespace kformer {
namespace {

using Impl::GgufCursor;

constexpr std::uint32_t magic = 0x46554747;  // "GGUF"
constexpr std::uint32_t version = 3;
constexpr std::uint32_t swapped_version = 0x03000000;
constexpr std::size_t longest_key = 65535;
constexpr std::size_t longest_tensor_name = 64;
constexpr std::uint32_t most_dimensions = 4;
constexpr std::uint64_t default_alignment = 32;

/// A tensor as the header describes it.
struct TensorInfo {
  std::string name;
  CheckpointTensor tensor;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
};

struct Counts {
  std::uint64_t tensors;
  std::uint64_t metadata;
};

Counts take_header(GgufCursor& cursor) {
  if (cursor.remaining() < sizeof(magic) || cursor.number<std::uint32_t>("the magic number") != magic)
    cursor.refuse("it does not begin with \"GGUF\"");
  const auto found = cursor.number<std::uint32_t>("the version");
  if (found == swapped_version) cursor.refuse("it is big-endian; only little-endian files are supported");
  if (found != version)
    cursor.refuse("it has version " + std::to_string(found) + ", but only version 3 is supported; convert it");
  const auto tensors = cursor.number<std::uint64_t>("the number of tensors");
  return {tensors, cursor.number<std::uint64_t>("the number of metadata")};
}

std::string take_name(GgufCursor& cursor, std::size_t longest, const std::string& what) {
  const std::string_view name = cursor.string(what);
  if (name.empty()) cursor.refuse(what + " is empty");
  if (name.size() > longest)
    cursor.refuse(what + " has " + std::to_string(name.size()) + " bytes, at most " + std::to_string(longest) +
                  " are legal");
  return std::string(name);
}

TensorInfo take_tensor_info(GgufCursor& cursor) {
  TensorInfo info;
  info.name = take_name(cursor, longest_tensor_name, "the name of a tensor");
  const std::string what = "tensor '" + info.name + "'";
  const auto dimensions = cursor.number<std::uint32_t>("the number of dimensions of " + what);
  if (dimensions > most_dimensions)
    cursor.refuse(what + " has " + std::to_string(dimensions) + " dimensions, but at most 4 are allowed");
  for (std::uint32_t i = 0; i < dimensions; ++i)
    info.tensor.shape.push_back(cursor.number<std::uint64_t>("the shape of " + what));
  std::reverse(info.tensor.shape.begin(), info.tensor.shape.end());
  const auto type = cursor.number<std::uint32_t>("the type of " + what);
  const auto stored = Impl::gguf_type(type);
  if (!stored)
    cursor.refuse(what + " is of type " + Impl::gguf_type_text(type) +
                  ", supported are F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, TQ1_0 and TQ2_0");
  info.tensor.type = *stored;
  info.offset = cursor.number<std::uint64_t>("the offset of " + what);

  const auto block = *Impl::tensor_block(*stored);
  if (!info.tensor.shape.empty() && info.tensor.shape.back() % block.elements != 0)
    cursor.refuse(what + " of type " + to_string(*stored) + " has rows of " +
                  std::to_string(info.tensor.shape.back()) +
                  " elements, which is not a whole number of blocks of " + std::to_string(block.elements));
  const auto bytes = Impl::block_tensor_bytes(block, info.tensor.shape);
  if (!bytes || (info.tensor.shape.empty() && block.elements > 1))
    cursor.refuse(what + " is too large to address");
  info.bytes = *bytes;
  return info;
}

std::uint64_t alignment_of(const GgufFile& file, const GgufCursor& cursor) {
  const auto given = file.find_integer("general.alignment");
  if (given && (*given <= 0 || *given > UINT32_MAX || *given % 8 != 0))
    cursor.refuse("general.alignment is " + std::to_string(*given) + ", expected a multiple of 8");
  return given ? static_cast<std::uint64_t>(*given) : default_alignment;
}

void check_places(std::vector<TensorInfo>& infos, std::uint64_t alignment, std::size_t data_size,
                  const GgufCursor& cursor) {
  for (const TensorInfo& info : infos) {
    const std::string where =
        "the data of tensor '" + info.name + "' begin at byte " + std::to_string(info.offset);
    if (info.offset % alignment != 0)
      cursor.refuse(where + ", which is not a multiple of the alignment " + std::to_string(alignment));
    if (info.offset > data_size || info.bytes > data_size - info.offset)
      cursor.refuse(where + " and take " + std::to_string(info.bytes) + " bytes, but " +
                    std::to_string(data_size) + " are there; is the file truncated?");
  }
  std::sort(infos.begin(), infos.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  const TensorInfo* before = nullptr;
  for (const TensorInfo& info : infos) {
    if (before != nullptr && info.offset - before->offset < before->bytes && info.bytes > 0)
      cursor.refuse("the data of tensors '" + before->name + "' and '" + info.name + "' overlap");
    if (info.bytes > 0) before = &info;
  }
}

}  // namespace

GgufFile GgufFile::open(const std::filesystem::path& path) {
  const Impl::MappedFile mapped = Impl::map_file(path);
  GgufFile file = parse(mapped.bytes(), path.string());
  file.m_mapping = mapped.start;
  return file;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string source) {
  GgufFile file;
  file.m_source = std::move(source);
  GgufCursor cursor(bytes, file.m_source);
  const Counts counts = take_header(cursor);
  for (std::uint64_t i = 0; i < counts.metadata; ++i) {
    const std::string key = take_name(cursor, longest_key, "the key of a metadata value");
    if (!file.m_metadata.emplace(key, Impl::take_value(cursor, key)).second)
      cursor.refuse("the metadata key '" + key + "' occurs twice");
  }
  std::vector<TensorInfo> infos;
  for (std::uint64_t i = 0; i < counts.tensors; ++i) infos.push_back(take_tensor_info(cursor));

  const std::uint64_t alignment = alignment_of(file, cursor);
  const std::uint64_t padding = (alignment - cursor.position() % alignment) % alignment;
  const auto data = bytes.subspan(cursor.position() + std::min<std::uint64_t>(padding, cursor.remaining()));
  check_places(infos, alignment, data.size(), cursor);
  for (TensorInfo& info : infos) {
    info.tensor.bytes = data.subspan(info.offset, info.bytes);
    if (!file.m_tensors.emplace(info.name, std::move(info.tensor)).second)
      cursor.refuse("the tensor '" + info.name + "' occurs twice");
  }
  return file;
}

}  // namespace kformer
