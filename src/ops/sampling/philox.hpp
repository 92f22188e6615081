// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

/// \file
/// Philox-4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC'11): random numbers as a
/// function of a key and a counter.

namespace kformer::Impl {

struct PhiloxBlock {
  std::uint32_t word[4];
};

KOKKOS_INLINE_FUNCTION PhiloxBlock philox(PhiloxBlock counter, std::uint64_t key) {
  std::uint32_t key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

/// The random number of a position in a stream.
KOKKOS_INLINE_FUNCTION std::uint64_t random_number(std::uint64_t seed, std::int64_t stream,
                                                   std::int32_t position) {
  const auto s = static_cast<std::uint64_t>(stream);
  const PhiloxBlock block = philox({{static_cast<std::uint32_t>(position), 0, static_cast<std::uint32_t>(s),
                                     static_cast<std::uint32_t>(s >> 32)}},
                                   seed);
  return std::uint64_t{block.word[1]} << 32 | block.word[0];
}

/// `random` scaled to [0, end): the upper 64 bits of random·end.
KOKKOS_INLINE_FUNCTION std::uint64_t scaled_below(std::uint64_t end, std::uint64_t random) {
  const std::uint64_t low_mask = 0xFFFFFFFF;
  const std::uint64_t a = random >> 32, b = random & low_mask, c = end >> 32, d = end & low_mask;
  const std::uint64_t middle = a * d + (b * d >> 32);
  return a * c + (middle >> 32) + ((b * c + (middle & low_mask)) >> 32);
}

}  // namespace kformer::Impl
