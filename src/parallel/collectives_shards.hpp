// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/scalar.hpp"
#include "parallel/collectives.hpp"

/// \file
/// Definitions of the members of Collectives that work on shards.

namespace kformer {

// The shard of a rank in parts of at most one message.
template <class Exec>
class Collectives<Exec>::ShardMessages {
 public:
  ShardMessages(std::span<const TensorRef> arrays, std::span<const ArrayRange> ranges, std::size_t bytes)
      : m_arrays(arrays), m_ranges(ranges), m_bytes(bytes) {
    skip_empty();
  }

  bool ended() const { return m_range == m_ranges.size(); }
  DType dtype() const { return m_arrays[m_ranges[m_range].array].dtype; }
  // The next part; one without elements behind the last.
  Array part() const {
    if (ended()) return {};
    const ArrayRange& range = m_ranges[m_range];
    const std::size_t element = size_of(dtype());
    const std::int64_t longest = static_cast<std::int64_t>(m_bytes / element);
    const TensorRef rest = part_of(m_arrays[range.array], {range.array, range.begin + m_done, range.end});
    return {static_cast<std::byte*>(rest.data), std::min(longest, rest.size()), element};
  }
  void advance() {
    if (ended()) return;
    m_done += part().count;
    if (m_done < m_ranges[m_range].size()) return;
    ++m_range;
    m_done = 0;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (!ended() && m_ranges[m_range].size() == 0) ++m_range;
  }

  std::span<const TensorRef> m_arrays;
  std::span<const ArrayRange> m_ranges;
  std::size_t m_bytes;
  std::size_t m_range = 0;
  std::int64_t m_done = 0;  // of this range
};

namespace Impl {

/// The kernel that sums arrays of a type.
template <class Exec>
auto sum_parts_of(DType dtype) {
  if (dtype == DType::u8)
    throw NotSupported(std::string("kformer::Collectives::reduce_shards: an array is of ") + to_string(dtype) +
                       "; expected float, double, bf16 or f16");
  return dispatch_dtype(dtype, []<class T>(std::type_identity<T>) { return &sum_parts<T, Exec>; });
}

}  // namespace Impl

template <class Exec>
void Collectives<Exec>::require_shards(const char* function, const Shards& shards) const {
  if (shards.ranks() != size())
    throw NotSupported(std::string("kformer::Collectives::") + function + ": the shards are for " +
                       std::to_string(shards.ranks()) + " ranks, and '" + m_communicator->name() + "' has " +
                       std::to_string(size()));
}

template <class Exec>
void Collectives<Exec>::reduce_shards(const Exec& exec, std::span<const TensorRef> arrays, const Shards& shards,
                                      std::string_view region, SomeArrays some) {
  require_shards("reduce_shards", shards);
  for (const TensorRef& array : arrays) Impl::sum_parts_of<Exec>(array.dtype);
  Call call(*this, exec, "reduce_shards", region);
  if (size() == 1) return;
  std::vector<ShardMessages> messages;
  for (int r = 0; r < size(); ++r) {
    const std::span<const ArrayRange> ranges(shards.of(r));
    messages.emplace_back(arrays, ranges.subspan(some.begin, std::min(some.end, ranges.size()) - some.begin),
                          m_slot_bytes);
  }
  while (!std::ranges::all_of(messages, &ShardMessages::ended)) {
    ShardMessages& mine = messages[static_cast<std::size_t>(rank())];
    const Array own = mine.part();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      call.send(peer, messages[static_cast<std::size_t>(peer)].part());
      call.receive(peer, {slot(peer), own.count, own.element});
    }
    call.exchange();
    if (!mine.ended()) Impl::sum_parts_of<Exec>(mine.dtype())(exec, parts(own), own.data, own.count);
    for (ShardMessages& m : messages) m.advance();
  }
}

template <class Exec>
void Collectives<Exec>::gather_shards(const Exec& exec, std::span<const TensorRef> arrays, const Shards& shards,
                                      std::string_view region) {
  require_shards("gather_shards", shards);
  Call call(*this, exec, "gather_shards", region);
  if (size() == 1) return;
  std::vector<ShardMessages> messages;
  for (int r = 0; r < size(); ++r) messages.emplace_back(arrays, shards.of(r), m_slot_bytes);
  while (!std::ranges::all_of(messages, &ShardMessages::ended)) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      call.send(peer, messages[static_cast<std::size_t>(rank())].part());
      call.receive(peer, messages[static_cast<std::size_t>(peer)].part());
    }
    call.exchange();
    for (ShardMessages& m : messages) m.advance();
  }
}

}  // namespace kformer
