// SPDX-License-Identifier: MIT
#include "io/gguf/layout.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace kformer::Impl {
namespace {

using Row = std::pair<std::uint32_t, std::string_view>;
constexpr std::array type_names{Row{0, "F32"},      Row{1, "F16"},     Row{2, "Q4_0"},     Row{3, "Q4_1"},
                                Row{6, "Q5_0"},     Row{7, "Q5_1"},    Row{8, "Q8_0"},     Row{9, "Q8_1"},
                                Row{10, "Q2_K"},    Row{11, "Q3_K"},   Row{12, "Q4_K"},    Row{13, "Q5_K"},
                                Row{14, "Q6_K"},    Row{15, "Q8_K"},   Row{16, "IQ2_XXS"}, Row{17, "IQ2_XS"},
                                Row{18, "IQ3_XXS"}, Row{19, "IQ1_S"},  Row{20, "IQ4_NL"},  Row{21, "IQ3_S"},
                                Row{22, "IQ2_S"},   Row{23, "IQ4_XS"}, Row{24, "I8"},      Row{25, "I16"},
                                Row{26, "I32"},     Row{27, "I64"},    Row{28, "F64"},     Row{29, "IQ1_M"},
                                Row{30, "BF16"},    Row{34, "TQ1_0"},  Row{35, "TQ2_0"},   Row{39, "MXFP4"}};

std::string_view name_of_type(std::uint32_t type) {
  const auto row =
      std::find_if(type_names.begin(), type_names.end(), [&](const Row& entry) { return entry.first == type; });
  return row == type_names.end() ? std::string_view() : row->second;
}

}  // namespace

std::optional<TensorBlock> tensor_block(const StoredType& type) {
  if (const auto format = quantized_format_of(type))
    return TensorBlock{static_cast<std::size_t>(weights_per_block(*format)),
                       static_cast<std::size_t>(bytes_per_block(*format))};
  const auto dtype = dtype_of_numbers(type);
  if (!dtype || !is_float(*dtype)) return std::nullopt;
  return TensorBlock{1, size_of(*dtype)};
}

std::optional<std::size_t> block_tensor_bytes(TensorBlock block, std::span<const std::size_t> shape) {
  std::size_t total = block.bytes;
  const std::size_t columns = shape.empty() ? 1 : shape.back();
  const std::size_t blocks = columns / block.elements + (columns % block.elements == 0 ? 0 : 1);
  if (__builtin_mul_overflow(total, blocks, &total)) return std::nullopt;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    if (__builtin_mul_overflow(total, shape[i], &total)) return std::nullopt;
  }
  return total;
}

std::optional<std::size_t> tensor_bytes(const StoredType& type, std::span<const std::size_t> shape) {
  const auto block = tensor_block(type);
  auto bytes = block ? block_tensor_bytes(*block, shape) : std::nullopt;
  const auto format = quantized_format_of(type);
  if (bytes && format &&
      __builtin_add_overflow(*bytes, quantized_tail_bytes(*format, *bytes / block->bytes), &*bytes))
    return std::nullopt;
  return bytes;
}

std::string gguf_type_text(std::uint32_t type) {
  const std::string_view name = name_of_type(type);
  return (name.empty() ? "unknown" : std::string(name)) + " (type " + std::to_string(type) + ")";
}

std::optional<StoredType> gguf_type(std::uint32_t type) {
  StoredType stored = stored_type_named(name_of_type(type));
  return tensor_block(stored) ? std::optional(std::move(stored)) : std::nullopt;
}

}  // namespace kformer::Impl
