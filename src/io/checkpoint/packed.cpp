// SPDX-License-Identifier: MIT
#include "io/checkpoint/packed.hpp"

#include <charconv>
#include <optional>
#include <string_view>

#include "io/gguf/layout.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

constexpr std::string_view prefix = "kformer.quantized.";

/// The next word of a text with single spaces between its words.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = text.find(' ');
  const std::string_view word = text.substr(0, end);
  text = end == text.npos ? std::string_view() : text.substr(end + 1);
  return word;
}

std::optional<std::size_t> extent_of(std::string_view word) {
  std::size_t extent = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), extent);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return extent;
}

/// Type and shape of a text "TQ2_0 <out> <in>".
std::optional<CheckpointTensor> parse_text(std::string_view text) {
  CheckpointTensor tensor;
  tensor.type = stored_type_named(take_word(text));
  const auto rows = extent_of(take_word(text));
  const auto columns = extent_of(text);
  if (!quantized_format_of(tensor.type) || !rows || !columns) return std::nullopt;
  tensor.shape = {*rows, *columns};
  return tensor;
}

}  // namespace

std::string packed_key(const std::string& name) { return std::string(prefix) + name; }

std::string packed_text(const CheckpointTensor& tensor) {
  return to_string(tensor.type) + " " + std::to_string(tensor.shape[0]) + " " + std::to_string(tensor.shape[1]);
}

std::map<std::string, CheckpointTensor> packed_tensors(const SafetensorsFile& file, const std::string& path) {
  std::map<std::string, CheckpointTensor> tensors;
  for (const auto& noted : file.metadata()) {
    // Lambdas of clang before 16 capture no structured bindings.
    const std::string &key = noted.first, &text = noted.second;
    if (!key.starts_with(prefix)) continue;
    const std::string name = key.substr(prefix.size());
    const auto refuse = [&](const std::string& reason) {
      throw FileError("'" + path + "': metadata '" + key + "' = \"" + text + "\": " + reason);
    };
    auto tensor = parse_text(text);
    if (!tensor) refuse("expected a quantised type and two extents, such as \"TQ2_0 64 256\"");
    const TensorEntry* entry = file.find(name);
    if (entry == nullptr) refuse("the file has no such tensor");
    if (entry->dtype != "U8") refuse("the tensor is of type " + entry->dtype + ", expected U8");
    const auto bytes = tensor_bytes(tensor->type, tensor->shape);
    if (!bytes || entry->bytes.size() != *bytes)
      refuse("the tensor has " + std::to_string(entry->bytes.size()) + " bytes, expected " +
             (bytes ? std::to_string(*bytes) : "more than can be addressed"));
    tensor->bytes = entry->bytes;
    tensors.emplace(name, std::move(*tensor));
  }
  return tensors;
}

}  // namespace kformer::Impl
