// SPDX-License-Identifier: MIT
#include "io/safetensors/layout.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace kformer::Impl {

std::optional<std::size_t> element_bits(std::string_view dtype) {
  using Row = std::pair<std::string_view, std::size_t>;
  static constexpr std::array table{
      Row{"F64", 64},    Row{"F32", 32},    Row{"F16", 16},        Row{"BF16", 16},       Row{"I64", 64},
      Row{"I32", 32},    Row{"I16", 16},    Row{"I8", 8},          Row{"U64", 64},        Row{"U32", 32},
      Row{"U16", 16},    Row{"U8", 8},      Row{"BOOL", 8},        Row{"C64", 64},        Row{"F8_E5M2", 8},
      Row{"F8_E4M3", 8}, Row{"F8_E8M0", 8}, Row{"F8_E4M3FNUZ", 8}, Row{"F8_E5M2FNUZ", 8}, Row{"F6_E2M3", 6},
      Row{"F6_E3M2", 6}, Row{"F4", 4}};
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const Row& entry) { return entry.first == dtype; });
  return row == table.end() ? std::nullopt : std::optional(row->second);
}

std::optional<std::size_t> tensor_bytes(std::string_view dtype, std::span<const std::size_t> shape) {
  const auto bits = element_bits(dtype);
  if (!bits) return std::nullopt;
  std::size_t total = *bits;
  for (const std::size_t extent : shape) {
    if (__builtin_mul_overflow(total, extent, &total)) return std::nullopt;
  }
  return total % 8 == 0 ? std::optional(total / 8) : std::nullopt;
}

}  // namespace kformer::Impl
