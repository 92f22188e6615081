// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kformer::Impl {

static_assert(std::endian::native == std::endian::little,
              "safetensors data are little-endian and used in place");

/// Largest JSON header that the format allows, in bytes.
inline constexpr std::uint64_t largest_header = 100'000'000;

/// Key of the free-form texts; no tensor can have this name.
inline constexpr std::string_view metadata_key = "__metadata__";

/// Bits per element of a safetensors type, or nothing if it is unknown.
std::optional<std::size_t> element_bits(std::string_view dtype);

/// Bytes that a tensor takes, or nothing if the type is unknown, the size overflows, or it is not a whole
/// number of bytes.
std::optional<std::size_t> tensor_bytes(std::string_view dtype, std::span<const std::size_t> shape);

}  // namespace kformer::Impl
