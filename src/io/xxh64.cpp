// SPDX-License-Identifier: MIT
#include "io/xxh64.hpp"

#include <bit>
#include <cstring>

namespace kformer::Impl {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read in place");

constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87, prime2 = 0xC2B2AE3D27D4EB4F, prime3 = 0x165667B19E3779F9,
                        prime4 = 0x85EBCA77C2B2AE63, prime5 = 0x27D4EB2F165667C5;

template <class U>
U take(const std::byte*& at) {
  U value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

std::uint64_t round(std::uint64_t accumulator, std::uint64_t lane) {
  return std::rotl(accumulator + lane * prime2, 31) * prime1;
}

std::uint64_t merge(std::uint64_t hash, std::uint64_t accumulator) {
  return (hash ^ round(0, accumulator)) * prime1 + prime4;
}

}  // namespace

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed) {
  constexpr std::size_t stripe = 32;
  const std::byte *at = bytes.data(), *const end = at + bytes.size();
  std::uint64_t hash = seed + prime5;
  if (bytes.size() >= stripe) {
    std::uint64_t a = seed + prime1 + prime2, b = seed + prime2, c = seed, d = seed - prime1;
    while (end - at >= static_cast<std::ptrdiff_t>(stripe)) {
      a = round(a, take<std::uint64_t>(at));
      b = round(b, take<std::uint64_t>(at));
      c = round(c, take<std::uint64_t>(at));
      d = round(d, take<std::uint64_t>(at));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    hash = merge(merge(merge(merge(hash, a), b), c), d);
  }
  hash += bytes.size();
  while (end - at >= 8) hash = std::rotl(hash ^ round(0, take<std::uint64_t>(at)), 27) * prime1 + prime4;
  if (end - at >= 4) hash = std::rotl(hash ^ take<std::uint32_t>(at) * prime1, 23) * prime2 + prime3;
  while (at < end) hash = std::rotl(hash ^ take<std::uint8_t>(at) * prime5, 11) * prime1;
  hash = (hash ^ hash >> 33) * prime2;
  hash = (hash ^ hash >> 29) * prime3;
  return hash ^ hash >> 32;
}

}  // namespace kformer::Impl
