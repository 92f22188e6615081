// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "kformer/core/stored_type.hpp"

/// \file
/// Types of GGUF files, and the sizes of tensors. Row-major, blocks of quantised weights along the rows.

namespace kformer::Impl {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian and used in place");

/// Elements and bytes of the unit that a tensor type is stored in.
struct TensorBlock {
  std::size_t elements;
  std::size_t bytes;
};

/// The unit of a supported tensor type, or nothing for any other.
std::optional<TensorBlock> tensor_block(const StoredType& type);

/// Bytes of a tensor with whole blocks in every row, the last block padded; nothing if the size cannot be
/// addressed.
/// \param shape slowest extent first
std::optional<std::size_t> block_tensor_bytes(TensorBlock block, std::span<const std::size_t> shape);

/// The same of a tensor of a supported type, with what is behind the rows of a matrix of NF4.
std::optional<std::size_t> tensor_bytes(const StoredType& type, std::span<const std::size_t> shape);

/// The name that ggml gives a tensor type, with its number: "Q4_K (type 12)".
std::string gguf_type_text(std::uint32_t type);

/// The supported tensor type with this number, or nothing.
std::optional<StoredType> gguf_type(std::uint32_t type);

}  // namespace kformer::Impl
