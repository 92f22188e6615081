// SPDX-License-Identifier: MIT
#include "io/checkpoint/bitsandbytes.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/nf4_tables.hpp"
#include "io/gguf/layout.hpp"
#include "io/json_depth.hpp"
#include "io/mapped_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

using nlohmann::json;

constexpr std::string_view state_of_nf4 = ".quant_state.bitsandbytes__nf4",
                           state_of_any = ".quant_state.bitsandbytes__";
constexpr std::size_t longest_state = 4096;
constexpr int deepest_state = 4;
constexpr std::size_t code_bytes = 32;  // of a block of 64 weights

/// What the tensors of a weight must have, and its parts.
class Nf4Group {
 public:
  Nf4Group(const CheckpointContents& contents, std::string name)
      : m_contents(contents), m_name(std::move(name)) {
    read_state();
    const std::size_t columns = m_shape[1];
    if (columns % 64 != 0)
      refuse(fmt::format("has rows of {} weights, which are no whole number of blocks of 64", columns));
    m_blocks = m_shape[0] * (columns / 64);
    const std::size_t groups = m_blocks / 256 + (m_blocks % 256 == 0 ? 0 : 1);
    m_codes = part("", "U8", m_blocks * code_bytes);
    m_absmax = part(".absmax", "U8", m_blocks);
    m_nested = part(".nested_absmax", "F32", groups * sizeof(float));
    require_values(
        ".quant_map", [](std::size_t code) { return nf4_values.of[code]; }, 16, "the 16 values of NF4");
    require_values(".nested_quant_map", absmax_value, 256, "the signed dynamic map of 8 bits");
  }

  CheckpointTensor tensor() const { return {QuantizedFormat::nf4, {m_shape[0], m_shape[1]}, {}}; }

  /// The matrix as `QuantizedFormat` has it: the code of each block's absmax before its codes, then the numbers of the
  /// matrix.
  std::vector<std::byte> arranged() const {
    std::vector<std::byte> bytes(*tensor_bytes(QuantizedFormat::nf4, tensor().shape));
    std::byte* to = bytes.data();
    for (std::size_t block = 0; block < m_blocks; ++block, to += 1 + code_bytes) {
      *to = m_absmax[block];
      std::memcpy(to + 1, m_codes.data() + block * code_bytes, code_bytes);
    }
    release_pages(m_codes);
    if (m_blocks == 0) return bytes;
    std::memcpy(to, &m_offset, sizeof(m_offset));
    std::memcpy(to + sizeof(m_offset), m_nested.data(), m_nested.size());
    return bytes;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason, std::string_view suffix = "") const {
    throw FileError(fmt::format("'{}': tensor '{}{}' {}", m_contents.source, m_name, suffix, reason));
  }

  std::span<const std::byte> part(std::string_view suffix, std::string_view type, std::size_t bytes) const {
    const CheckpointTensor* found = m_contents.find_layout(m_name + std::string(suffix));
    if (found == nullptr) refuse("is missing beside its quant_state", suffix);
    if (to_string(found->type) != type)
      refuse(fmt::format("is of type {}, expected {}", to_string(found->type), type), suffix);
    if (found->bytes.size() != bytes)
      refuse(fmt::format("has {} bytes, expected {}", found->bytes.size(), bytes), suffix);
    return found->bytes;
  }

  static float absmax_value(std::size_t code) {
    return static_cast<float>(code < 127 ? -nf4_absmax_values.of[127 - code]
                                         : nf4_absmax_values.of[code - 127]);
  }

  /// Bits, because other values would give other weights.
  void require_values(std::string_view suffix, float (*value)(std::size_t), std::size_t count,
                      std::string_view what) const {
    const auto bytes = part(suffix, "F32", count * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) {
      float stored = 0;
      std::memcpy(&stored, bytes.data() + i * sizeof(float), sizeof(float));
      if (!(stored == value(i)))
        refuse(fmt::format("is not {}: number {} is {}, expected {}", what, i, stored, value(i)), suffix);
    }
  }

  json parsed_state() const {
    const CheckpointTensor* found = m_contents.find_layout(m_name + std::string(state_of_nf4));
    if (found == nullptr || to_string(found->type) != "U8" || found->bytes.size() > longest_state)
      refuse(fmt::format("must be a text of at most {} bytes, as U8", longest_state), state_of_nf4);
    const std::string_view text(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size());
    if (!is_shallow_json(text, deepest_state)) refuse("is nested too deeply", state_of_nf4);
    try {
      return json::parse(text);
    } catch (const json::exception&) {
      refuse("is not JSON", state_of_nf4);
    }
  }

  void read_state() {
    const json state = parsed_state();
    if (!state.is_object()) refuse("is not a JSON object", state_of_nf4);
    if (!state.contains("nested_offset"))
      refuse(
          "has scales in float; only those of double quantisation are supported (bnb_4bit_use_double_quant)");
    const auto require = [&](const char* key, const json& expected) {
      if (!state.contains(key) || state[key] != expected)
        refuse(fmt::format("must have '{}': {}", key, expected.dump()), state_of_nf4);
    };
    require("quant_type", "nf4");
    require("blocksize", 64);
    require("nested_blocksize", 256);
    require("nested_dtype", "float32");
    if (!state["nested_offset"].is_number()) refuse("must have a number as 'nested_offset'", state_of_nf4);
    const double offset = state["nested_offset"].get<double>();
    if (std::abs(offset) > std::numeric_limits<float>::max())
      refuse("must have a float as 'nested_offset'", state_of_nf4);
    m_offset = static_cast<float>(offset);
    const json shape = state.value("shape", json());
    const auto is_extent = [](const json& extent) {
      return extent.is_number_unsigned() && extent.get<std::uint64_t>() <= std::uint64_t(1) << 31;
    };
    if (!shape.is_array() || shape.size() != 2 || !is_extent(shape[0]) || !is_extent(shape[1]))
      refuse("must have two extents as 'shape'", state_of_nf4);
    m_shape = {shape[0].get<std::size_t>(), shape[1].get<std::size_t>()};
  }

  const CheckpointContents& m_contents;
  std::string m_name;
  std::array<std::size_t, 2> m_shape{};
  std::size_t m_blocks = 0;
  float m_offset = 0;
  std::span<const std::byte> m_codes, m_absmax, m_nested;
};

}  // namespace

bool join_bitsandbytes(CheckpointContents& contents) {
  bool any = false;
  for (const std::string& state : contents.names()) {
    if (!state.ends_with(state_of_nf4)) {
      if (state.find(state_of_any) == state.npos) continue;
      throw FileError("'" + contents.source + "': tensor '" + state +
                      "': of the 4-bit types of bitsandbytes only nf4 is supported");
    }
    const std::string name = state.substr(0, state.size() - state_of_nf4.size());
    const Nf4Group group(contents, name);
    contents.replace(name, group.tensor(), [group] { return group.arranged(); });
    for (const std::string_view suffix :
         {std::string_view(".absmax"), std::string_view(".nested_absmax"),
          std::string_view(".nested_quant_map"), std::string_view(".quant_map"), state_of_nf4})
      contents.remove(name + std::string(suffix));
    any = true;
  }
  return any;
}

}  // namespace kformer::Impl
