// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Profiling_ProfileSection.hpp>

#include <chrono>

#include "kformer/core/scalar.hpp"
#include "parallel/collectives.hpp"

/// \file
/// Definitions of the members of Collectives that work on shards.

namespace kformer {

// The shard of a rank, cut into messages of at most so many bytes, each of parts of one array.
template <class Exec>
class Collectives<Exec>::ShardMessages {
 public:
  ShardMessages(std::span<const TensorRef> arrays, std::span<const ArrayRange> ranges, std::size_t bytes)
      : m_arrays(arrays), m_ranges(ranges), m_bytes(bytes) {}

  bool ended() const {
    return std::all_of(m_ranges.begin() + static_cast<std::ptrdiff_t>(m_next.range), m_ranges.end(),
                       [](const ArrayRange& range) { return range.size() == 0; });
  }
  // `f(part, type, bytes before it)` of the next message.
  template <class F>
  void for_parts(F f) const {
    walk(f);
  }
  void advance() {
    m_next = walk([](const Array&, DType, std::size_t) {});
  }

 private:
  struct Place {
    std::size_t range = 0;
    std::int64_t done = 0;  // of this range
  };

  // Returns where the message behind it begins.
  template <class F>
  Place walk(F f) const {
    Place place = m_next;
    std::size_t at = 0;
    for (; place.range < m_ranges.size(); ++place.range, place.done = 0) {
      const ArrayRange& range = m_ranges[place.range];
      const TensorRef& array = m_arrays[range.array];
      const std::size_t element = size_of(array.dtype);
      const auto room = static_cast<std::int64_t>((m_bytes - at) / element);
      const std::int64_t rest = range.size() - place.done, count = std::min(room, rest);
      if (count > 0) {
        const TensorRef part =
            part_of(array, {range.array, range.begin + place.done, range.begin + place.done + count});
        f(Array{static_cast<std::byte*>(part.data), count, element}, array.dtype, at);
        at += (static_cast<std::size_t>(count) * element + 7) / 8 * 8;  // slots have a multiple of 64
      }
      if (count == rest) continue;
      place.done += count;
      break;
    }
    return place;
  }

  std::span<const TensorRef> m_arrays;
  std::span<const ArrayRange> m_ranges;
  std::size_t m_bytes;
  Place m_next;
};

namespace Impl {

/// What a rank has of some arrays.
inline std::span<const ArrayRange> ranges_of(const Shards& shards, int rank, SomeArrays some) {
  const std::span<const ArrayRange> ranges(shards.of(rank));
  return ranges.subspan(some.begin, std::min(some.end, ranges.size()) - some.begin);
}

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

// One that has begun, of which at most one message to each rank is under way.
template <class Exec>
class Collectives<Exec>::Reduction {
 public:
  Reduction(const Collectives& ranks, std::span<const TensorRef> arrays, const Shards& shards,
            std::string_view region, SomeArrays some)
      : m_communicator(ranks.m_communicator),
        m_log(ranks.m_log),
        m_arrays(arrays.begin(), arrays.end()),
        m_region(region),
        m_section("reduce_shards") {
    for (int r = 0; r < ranks.size() && ranks.size() > 1; ++r)
      m_messages.emplace_back(m_arrays, Impl::ranges_of(shards, r, some), ranks.m_slot_bytes);
    m_section.start();
  }
  ~Reduction() {
    m_section.stop();
    m_log->book("reduce_shards", m_region, m_bytes, m_seconds);
  }
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  // Goes on until the end or, if it must not wait, until a message is late or has just begun: work is launched before it is
  // looked at, so that the instance need not wait at once. Returns whether it has ended.
  bool advance(Collectives& ranks, const Exec& exec, bool wait) {
    while (true) {
      if (m_under_way) {
        if (!has_arrived(wait)) return false;
        end_message(ranks, exec);
      }
      if (std::ranges::all_of(m_messages, &ShardMessages::ended)) return true;
      begin_message(ranks, exec);
      if (!wait) return false;
    }
  }

 private:
  bool has_arrived(bool wait) {
    const auto start = std::chrono::steady_clock::now();
    const bool arrived = wait || m_communicator->poll();
    if (arrived) m_communicator->finish();
    m_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return arrived;
  }

  void begin_message(Collectives& ranks, const Exec& exec) {
    ranks.forget_messages();
    for (int peer = 0; peer < ranks.size(); ++peer) {
      if (peer == ranks.rank()) continue;
      m_messages[static_cast<std::size_t>(peer)].for_parts(
          [&](const Array& part, DType, std::size_t) { ranks.send(peer, part); });
      of_rank(ranks).for_parts([&](const Array& part, DType, std::size_t at) {
        ranks.receive(peer, {ranks.slot(peer) + at, part.count, part.element});
      });
    }
    m_bytes += ranks.bytes_to_send();
    if (ranks.m_staged) ranks.stage(exec);
    m_seconds += m_communicator->begin(ranks.instance(exec), {"reduce_shards", m_region, m_log},
                                       ranks.m_outgoing, ranks.m_incoming);
    m_under_way = true;
  }

  void end_message(Collectives& ranks, const Exec& exec) {
    m_under_way = false;
    if (ranks.m_staged) ranks.unstage(exec);
    of_rank(ranks).for_parts([&](const Array& part, DType dtype, std::size_t at) {
      Impl::RankParts parts = ranks.parts(part);
      parts.other += at;
      Impl::sum_parts_of<Exec>(dtype)(exec, parts, part.data, part.count);
    });
    for (ShardMessages& m : m_messages) m.advance();
  }

  const ShardMessages& of_rank(const Collectives& ranks) const {
    return m_messages[static_cast<std::size_t>(ranks.rank())];
  }

  std::shared_ptr<Communicator> m_communicator;
  std::shared_ptr<CommunicationLog> m_log;
  std::vector<TensorRef> m_arrays;
  std::string m_region;
  std::vector<ShardMessages> m_messages;  // of each rank
  Kokkos::Profiling::ProfilingSection m_section;
  bool m_under_way = false;
  std::uint64_t m_bytes = 0;
  double m_seconds = 0;
};

template <class Exec>
Collectives<Exec>::Collectives(Collectives&&) noexcept = default;
template <class Exec>
Collectives<Exec>& Collectives<Exec>::operator=(Collectives&&) noexcept = default;
template <class Exec>
Collectives<Exec>::~Collectives() = default;

template <class Exec>
void Collectives<Exec>::begin_reduce_shards(const Exec& exec, std::span<const TensorRef> arrays,
                                            const Shards& shards, std::string_view region, SomeArrays some) {
  require_shards("reduce_shards", shards);
  for (const TensorRef& array : arrays) Impl::sum_parts_of<Exec>(array.dtype);
  m_begun.push_back(std::make_unique<Reduction>(*this, arrays, shards, region, some));
  poll(exec);
}

template <class Exec>
void Collectives<Exec>::poll(const Exec& exec) {
  Region region("reduce_shards");
  while (!m_begun.empty() && m_begun.front()->advance(*this, exec, false)) m_begun.erase(m_begun.begin());
}

template <class Exec>
void Collectives<Exec>::finish_reductions(const Exec& exec) {
  Region region("reduce_shards");
  while (!m_begun.empty()) {
    m_begun.front()->advance(*this, exec, true);
    m_begun.erase(m_begun.begin());
  }
}

template <class Exec>
void Collectives<Exec>::reduce_shards(const Exec& exec, std::span<const TensorRef> arrays, const Shards& shards,
                                      std::string_view region, SomeArrays some) {
  begin_reduce_shards(exec, arrays, shards, region, some);
  finish_reductions(exec);
}

template <class Exec>
void Collectives<Exec>::gather_shards(const Exec& exec, std::span<const TensorRef> arrays, const Shards& shards,
                                      std::string_view region, SomeArrays some) {
  require_shards("gather_shards", shards);
  Call call(*this, exec, "gather_shards", region);
  if (size() == 1) return;
  std::vector<ShardMessages> messages;
  for (int r = 0; r < size(); ++r)
    messages.emplace_back(arrays, Impl::ranges_of(shards, r, some), m_slot_bytes);
  while (!std::ranges::all_of(messages, &ShardMessages::ended)) {
    messages[static_cast<std::size_t>(rank())].for_parts([&](const Array& part, DType, std::size_t) {
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank()) call.send(peer, part);
    });
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank())
        messages[static_cast<std::size_t>(peer)].for_parts(
            [&](const Array& part, DType, std::size_t) { call.receive(peer, part); });
    call.exchange();
    for (ShardMessages& m : messages) m.advance();
  }
}

}  // namespace kformer
