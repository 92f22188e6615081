// SPDX-License-Identifier: MIT
#include "io/content_hash.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace kformer::Impl {
namespace {

constexpr std::uint64_t c1 = 0x87c37b91114253d5u, c2 = 0x4cf5ad432745937fu;
constexpr std::size_t block_bytes = 16;

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

std::uint64_t mixed_low(std::uint64_t word) { return std::rotl(word * c1, 31) * c2; }
std::uint64_t mixed_high(std::uint64_t word) { return std::rotl(word * c2, 33) * c1; }

std::uint64_t finished(std::uint64_t word) {
  word = (word ^ (word >> 33)) * 0xff51afd7ed558ccdu;
  word = (word ^ (word >> 33)) * 0xc4ceb9fe1a85ec53u;
  return word ^ (word >> 33);
}

}  // namespace

ContentHash hash_of(std::span<const std::byte> bytes) {
  std::uint64_t low = 0, high = 0;
  const std::size_t size = bytes.size();
  for (; bytes.size() >= block_bytes; bytes = bytes.subspan(block_bytes)) {
    low ^= mixed_low(word_at(bytes.data()));
    low = (std::rotl(low, 27) + high) * 5 + 0x52dce729u;
    high ^= mixed_high(word_at(bytes.data() + block_bytes / 2));
    high = (std::rotl(high, 31) + low) * 5 + 0x38495ab5u;
  }
  // The zeros after the last bytes change nothing: the mixture of 0 is 0.
  std::byte tail[block_bytes] = {};
  if (!bytes.empty()) std::memcpy(tail, bytes.data(), bytes.size());
  low ^= mixed_low(word_at(tail)) ^ size;
  high ^= mixed_high(word_at(tail + block_bytes / 2)) ^ size;
  low += high;
  high += low;
  low = finished(low);
  high = finished(high);
  low += high;
  high += low;
  return {low, high};
}

ContentHash hash_of(std::string_view text) { return hash_of(std::as_bytes(std::span(text))); }

std::string ContentHash::text() const { return fmt::format("{:016x}{:016x}", low, high); }

}  // namespace kformer::Impl
