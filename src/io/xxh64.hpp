// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kformer::Impl {

/// The checksum XXH64 (Collet, xxHash fast digest algorithm, version 0.1.1, sect. "XXH64 algorithm description").
std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace kformer::Impl
