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

Shards::Shards(std::span<const std::int64_t> sizes, std::int64_t piece, int ranks,
               std::span<const std::size_t> groups) {
  if (piece < 1 || ranks < 1)
    throw NotSupported("kformer::Shards: expected at least one rank and one element in a piece, got " +
                       std::to_string(ranks) + " and " + std::to_string(piece));
  const std::size_t all = sizes.size();
  if (groups.empty()) groups = std::span(&all, 1);
  if (groups.back() != all || !std::ranges::is_sorted(groups))
    throw NotSupported("kformer::Shards: expected groups that end in order, the last one with the last of " +
                       std::to_string(all) + " arrays");
  std::vector<std::int64_t> first{0};  // piece of each array
  for (const std::int64_t size : sizes) {
    if (size < 0) throw NotSupported("kformer::Shards: expected no negative size, got " + std::to_string(size));
    first.push_back(first.back() + (size + piece - 1) / piece);
  }
  m_ranges.resize(static_cast<std::size_t>(ranks));
  std::vector<std::vector<std::int64_t>> pieces(m_ranges.size());
  std::size_t array = 0;
  std::int64_t next = 0;  // rank, which gets the next piece that does not divide
  for (const std::size_t group_end : groups) {
    const std::int64_t begin = first[array], count = first[group_end] - begin, rest = count % ranks;
    for (std::int64_t run = 0; run < ranks; ++run) {
      const auto start = [&](std::int64_t of) { return begin + count / ranks * of + std::min(of, rest); };
      const auto rank = static_cast<std::size_t>((run + next) % ranks);
      for (std::size_t a = array; a < group_end; ++a) {
        const auto element = [&](std::int64_t at) {
          return std::clamp<std::int64_t>((at - first[a]) * piece, 0, sizes[a]);
        };
        m_ranges[rank].push_back({a, element(start(run)), element(start(run + 1))});
      }
      for (std::int64_t i = start(run); i < start(run + 1); ++i) pieces[rank].push_back(i);
    }
    next = (next + rest) % ranks;
    array = group_end;
  }
  m_places.resize(static_cast<std::size_t>(first.back()));
  std::int64_t place = 0;
  for (const auto& of_rank : pieces) {
    for (const std::int64_t i : of_rank) m_places[static_cast<std::size_t>(i)] = place++;
    m_pieces_end.push_back(place);
  }
}

std::int64_t Shards::elements(int rank) const {
  std::int64_t sum = 0;
  for (const ArrayRange& range : of(rank)) sum += range.size();
  return sum;
}

}  // namespace kformer
