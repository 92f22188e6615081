// SPDX-License-Identifier: MIT
#include "kformer/parallel/shards.hpp"

#include <algorithm>
#include <string>

#include "kformer/core/error.hpp"

namespace kformer {

TensorRef part_of(const TensorRef& array, const ArrayRange& range) {
  TensorRef part;
  part.data = array.data == nullptr ? nullptr
                                    : static_cast<std::byte*>(array.data) +
                                          static_cast<std::size_t>(range.begin) * size_of(array.dtype);
  part.dtype = array.dtype;
  part.rank = 1;
  part.extent[0] = range.size();
  part.stride[0] = 1;
  return part;
}

Shards::Shards(std::span<const std::int64_t> sizes, std::int64_t piece, int ranks) {
  if (piece < 1 || ranks < 1)
    throw NotSupported("kformer::Shards: expected at least one rank and one element in a piece, got " +
                       std::to_string(ranks) + " and " + std::to_string(piece));
  std::int64_t pieces = 0;
  for (const std::int64_t size : sizes) {
    if (size < 0) throw NotSupported("kformer::Shards: expected no negative size, got " + std::to_string(size));
    pieces += (size + piece - 1) / piece;
  }
  // ⌊P (r + 1) / n⌋ without a product that overflows.
  std::int64_t begin = 0;
  for (std::int64_t r = 1; r <= ranks; ++r) {
    const std::int64_t end = pieces / ranks * r + pieces % ranks * r / ranks;
    m_pieces_end.push_back(end);
    std::int64_t first = 0;  // piece of an array
    auto& ranges = m_ranges.emplace_back();
    for (std::size_t a = 0; a < sizes.size(); ++a) {
      const auto element = [&](std::int64_t at) {
        return std::clamp<std::int64_t>((at - first) * piece, 0, sizes[a]);
      };
      ranges.push_back({a, element(begin), element(end)});
      first += (sizes[a] + piece - 1) / piece;
    }
    begin = end;
  }
}

std::int64_t Shards::elements(int rank) const {
  std::int64_t sum = 0;
  for (const ArrayRange& range : of(rank)) sum += range.size();
  return sum;
}

}  // namespace kformer
