// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/core/region.hpp"
#include "kformer/parallel/collectives.hpp"
#include "kformer/parallel/tree_order.hpp"

/// \file
/// Definitions of the members of Collectives.

namespace kformer {

namespace Impl {

template <class T>
struct SumType : std::make_unsigned<T> {};  // so that overflow wraps
template <Scalar T>
struct SumType<T> : ComputeType<T> {};

template <class T, class Exec>
void sum_parts(const Exec& exec, const RankParts& parts, std::byte* out, std::int64_t count) {
  using A = typename SumType<T>::type;
  T* const sums = reinterpret_cast<T*>(out);
  Kokkos::parallel_for(
      "kformer::Collectives::sum", Kokkos::RangePolicy<Exec>(exec, 0, count), KOKKOS_LAMBDA(std::int64_t i) {
        sums[i] = static_cast<T>(tree_sum<A>(parts.size, [&](std::int64_t r) {
          const int rank = static_cast<int>(r);
          const std::byte* part =
              rank == parts.rank
                  ? parts.own
                  : parts.other + static_cast<std::size_t>(rank - (rank > parts.rank)) * parts.distance;
          return static_cast<A>(reinterpret_cast<const T*>(part)[i]);
        }));
      });
}

}  // namespace Impl

// One call of an operation: it collects messages, exchanges them, and is booked when it ends.
template <class Exec>
class Collectives<Exec>::Call {
 public:
  Call(Collectives& ranks, const Exec& exec, const char* operation, std::string_view region)
      : m_ranks(ranks), m_exec(exec), m_name{operation, region, ranks.m_log}, m_region(operation) {
    m_ranks.forget_messages();
  }
  ~Call() { m_ranks.m_log->book(m_name.operation, m_name.region, m_bytes, m_seconds); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void send(int peer, const Array& data) { m_ranks.send(peer, data); }
  void receive(int peer, const Array& data) { m_ranks.receive(peer, data); }

  // In memory of the execution space.
  void exchange() {
    if (m_ranks.m_staged) m_ranks.stage(m_exec);
    exchange(m_ranks.instance(m_exec));
    if (m_ranks.m_staged) m_ranks.unstage(m_exec);
  }

  void exchange_in_host_memory() { exchange(InstanceRef(m_exec).with_host_memory()); }

 private:
  void exchange(const InstanceRef& instance) {
    const auto& sends = m_ranks.m_outgoing;
    const auto& receives = m_ranks.m_incoming;
    m_bytes += m_ranks.bytes_to_send();
    if (!sends.empty() || !receives.empty())
      m_seconds += m_ranks.m_communicator->exchange(instance, m_name, sends, receives);
    m_ranks.forget_messages();
  }

  Collectives& m_ranks;
  const Exec& m_exec;
  const ExchangeName m_name;
  const Region m_region;
  std::uint64_t m_bytes = 0;
  double m_seconds = 0;
};

template <class Exec>
void Collectives<Exec>::forget_messages() {
  m_outgoing.clear();
  m_incoming.clear();
}

template <class Exec>
void Collectives<Exec>::send(int peer, const Array& data) {
  if (data.count > 0) m_outgoing.push_back({peer, data.data, data.bytes()});
}

template <class Exec>
void Collectives<Exec>::receive(int peer, const Array& data) {
  if (data.count > 0) m_incoming.push_back({peer, data.data, data.bytes()});
}

template <class Exec>
std::uint64_t Collectives<Exec>::bytes_to_send() const {
  std::uint64_t bytes = 0;
  for (const Outgoing& m : m_outgoing) bytes += m.bytes;
  return bytes;
}

// The communicator fences the instance before it uses the staging memory, so that earlier copies are done.
template <class Exec>
void Collectives<Exec>::stage(const Exec& exec) {
  std::byte* next = m_sends.data();
  const void* last = nullptr;
  for (Outgoing& m : m_outgoing) {
    if (m.data != last) {  // else several ranks get the same
      last = m.data;
      transfer<staging_space, memory_space>(exec, *m_ledger, next, m.data, m.bytes);
      next += m.bytes;
    }
    m.data = next - m.bytes;
  }
  m_targets = m_incoming;
  next = m_receives.data();
  for (Incoming& m : m_incoming) {
    m.data = next;
    next += m.bytes;
  }
}

template <class Exec>
void Collectives<Exec>::unstage(const Exec& exec) {
  const std::byte* next = m_receives.data();
  for (const Incoming& m : m_targets) {
    transfer<memory_space, staging_space>(exec, *m_ledger, m.data, next, m.bytes);
    next += m.bytes;
  }
}

namespace Impl {

inline const std::shared_ptr<Communicator>& checked(const std::shared_ptr<Communicator>& communicator,
                                                    const CollectivesOptions& options) {
  if (!communicator)
    throw NotSupported("kformer::Collectives: there is no communicator; one rank has a LoneCommunicator");
  if (options.chunk_bytes == 0) throw NotSupported("kformer::Collectives: chunk_bytes must be positive, got 0");
  return communicator;
}

inline std::size_t slot_bytes(const CollectivesOptions& options, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return ((options.chunk_bytes + ranks - 1) / ranks + 63) / 64 * 64;
}

}  // namespace Impl

template <class Exec>
Collectives<Exec>::Collectives(std::shared_ptr<Communicator> communicator, const CollectivesOptions& options,
                               Ledger& ledger)
    : m_communicator(Impl::checked(communicator, options)),
      m_ledger(ledger.shared_from_this()),
      m_log(options.log ? options.log : m_communicator->shared_log()),
      m_staged(size() > 1 && (options.staged ||
                              (!Impl::host_reaches<memory_space> && !m_communicator->takes_device_memory()))),
      m_slot_bytes(Impl::slot_bytes(options, size())) {
  m_received =
      ledger.allocate<memory_space>(MemoryClass::communication, "Collectives::received", receive_bytes());
  if (m_staged) {
    const std::size_t chunk = static_cast<std::size_t>(size()) * m_slot_bytes;
    m_sends = ledger.allocate<staging_space>(MemoryClass::communication, "Collectives::sends", chunk);
    m_receives = ledger.allocate<staging_space>(MemoryClass::communication, "Collectives::receives", chunk);
  }
}

template <class Exec>
void Collectives<Exec>::require_no_gaps(const char* function, bool contiguous, const std::string& extents) {
  if (!contiguous)
    throw DimensionMismatch(std::string("kformer::Collectives::") + function + ": the array " + extents +
                            " has gaps; expected one without");
}

template <class Exec>
void Collectives<Exec>::require_rank(const char* function, int peer) const {
  if (peer < 0 || peer >= size())
    throw NotSupported(std::string("kformer::Collectives::") + function + ": '" + m_communicator->name() +
                       "' has no rank " + std::to_string(peer) + ", only 0 to " + std::to_string(size() - 1));
}

template <class Exec>
void Collectives<Exec>::require_multiple(const char* function, const char* many, std::int64_t elements,
                                         const char* few, std::int64_t of) const {
  if (elements != of * size())
    throw DimensionMismatch(std::string("kformer::Collectives::") + function +
                            ": extents do not match: " + many + " has " + std::to_string(elements) +
                            " elements and " + few + " " + std::to_string(of) + "; expected " +
                            std::to_string(size()) + " times as many, one part for each rank");
}

template <class Exec>
std::byte* Collectives<Exec>::slot(int peer) const {
  const int place = peer - (peer > rank());
  return m_received.data() ? m_received.data() + static_cast<std::size_t>(place) * m_slot_bytes : nullptr;
}

template <class Exec>
Impl::RankParts Collectives<Exec>::parts(const Array& own) const {
  return {own.data, m_received.data(), m_slot_bytes, rank(), size()};
}

template <class Exec>
void Collectives<Exec>::copy(const Exec& exec, const Array& to, const Array& from) const {
  if (to.count == 0 || to.data == from.data) return;
  using Bytes = Kokkos::View<std::byte*, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  Kokkos::deep_copy(exec, Bytes(to.data, to.bytes()), Bytes(from.data, from.bytes()));
}

// Rank r sums part r of a chunk and sends the sum to all others.
template <class Exec>
void Collectives<Exec>::all_reduce(const Exec& exec, const Array& x, Sum sum, std::string_view region) {
  Call call(*this, exec, "all_reduce", region);
  if (size() == 1) return;
  const std::int64_t longest = size() * static_cast<std::int64_t>(m_slot_bytes / x.element);
  for (std::int64_t first = 0; first < x.count; first += longest) {
    const std::int64_t count = std::min(longest, x.count - first), each = (count + size() - 1) / size();
    const auto part = [&](int r) {
      const std::int64_t begin = std::min(count, r * each);
      return x.part(first + begin, std::min(each, count - begin));
    };
    const auto for_others = [&](auto f) {
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank()) f(peer);
    };
    const Array own = part(rank());
    for_others([&](int peer) {
      call.send(peer, part(peer));
      call.receive(peer, {slot(peer), own.count, own.element});
    });
    call.exchange();
    if (own.count > 0) sum(exec, parts(own), own.data, own.count);
    for_others([&](int peer) {
      call.send(peer, own);
      call.receive(peer, part(peer));
    });
    call.exchange();
  }
}

template <class Exec>
void Collectives<Exec>::reduce_scatter(const Exec& exec, const Array& x, const Array& y, Sum sum,
                                       std::string_view region) {
  require_multiple("reduce_scatter", "x", x.count, "y", y.count);
  Call call(*this, exec, "reduce_scatter", region);
  const std::int64_t longest = static_cast<std::int64_t>(m_slot_bytes / x.element);
  for (std::int64_t first = 0; first < y.count; first += longest) {
    const std::int64_t count = std::min(longest, y.count - first);
    const auto part = [&](int r) { return x.part(r * y.count + first, count); };
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      call.send(peer, part(peer));
      call.receive(peer, {slot(peer), count, x.element});
    }
    call.exchange();
    sum(exec, parts(part(rank())), y.part(first, count).data, count);
  }
}

template <class Exec>
void Collectives<Exec>::all_gather(const Exec& exec, const Array& x, const Array& y, std::string_view region) {
  require_multiple("all_gather", "y", y.count, "x", x.count);
  Call call(*this, exec, "all_gather", region);
  const std::int64_t longest = static_cast<std::int64_t>(m_slot_bytes / x.element);
  for (std::int64_t first = 0; first < x.count; first += longest) {
    const std::int64_t count = std::min(longest, x.count - first);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      call.send(peer, x.part(first, count));
      call.receive(peer, y.part(peer * x.count + first, count));
    }
    call.exchange();
  }
  copy(exec, y.part(rank() * x.count, x.count), x);
}

template <class Exec>
void Collectives<Exec>::all_to_all(const Exec& exec, const Array& x, const Array& y, std::string_view region) {
  const std::int64_t each = x.count / size();
  require_multiple("all_to_all", "x", x.count, "a part", each);
  if (x.count != y.count)
    throw DimensionMismatch("kformer::Collectives::all_to_all: extents do not match: x has " +
                            std::to_string(x.count) + " elements and y " + std::to_string(y.count) +
                            "; expected as many");
  Call call(*this, exec, "all_to_all", region);
  const std::int64_t longest = static_cast<std::int64_t>(m_slot_bytes / x.element);
  for (std::int64_t first = 0; first < each; first += longest) {
    const std::int64_t count = std::min(longest, each - first);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      call.send(peer, x.part(peer * each + first, count));
      call.receive(peer, y.part(peer * each + first, count));
    }
    call.exchange();
  }
  copy(exec, y.part(rank() * each, each), x.part(rank() * each, each));
}

// A binomial tree: rank v behind the root gets the array from v without its lowest bit, and passes it on to v + 1,
// v + 2, v + 4, … below that bit.
template <class Exec>
void Collectives<Exec>::broadcast(const Exec& exec, const Array& x, int root, std::string_view region) {
  require_rank("broadcast", root);
  Call call(*this, exec, "broadcast", region);
  const int behind = (rank() - root + size()) % size();
  const auto rank_behind = [&](int v) { return (root + v) % size(); };
  int lowest = 1;
  while (lowest < size() && !(behind & lowest)) lowest *= 2;
  const std::int64_t longest = size() * static_cast<std::int64_t>(m_slot_bytes / x.element);
  for (std::int64_t first = 0; first < x.count; first += longest) {
    const Array chunk = x.part(first, std::min(longest, x.count - first));
    if (behind != 0) call.receive(rank_behind(behind - lowest), chunk);
    call.exchange();
    for (int bit = lowest / 2; bit > 0; bit /= 2)
      if (behind + bit < size()) call.send(rank_behind(behind + bit), chunk);
    call.exchange();
  }
}

template <class Exec>
void Collectives<Exec>::point_to_point(const Exec& exec, const char* function, int to, const Array& x, int from,
                                       const Array& y, std::string_view region) {
  for (const auto& [peer, array] : {std::pair(to, x), std::pair(from, y)}) {
    if (array.element == 1) continue;  // this rank only sends, or only receives
    require_rank(function, peer);
    if (peer == rank())
      throw NotSupported(std::string("kformer::Collectives::") + function + ": rank " + std::to_string(peer) +
                         " of '" + m_communicator->name() + "' is the caller; name another rank");
  }
  Call call(*this, exec, function, region);
  const auto element = static_cast<std::int64_t>(std::max(x.element, y.element));
  const std::int64_t longest = size() * (static_cast<std::int64_t>(m_slot_bytes) / element);
  for (std::int64_t first = 0; first < std::max(x.count, y.count); first += longest) {
    const auto chunk = [&](const Array& a) {
      const std::int64_t begin = std::min(first, a.count);
      return a.part(begin, std::min(longest, a.count - begin));
    };
    call.send(to, chunk(x));
    call.receive(from, chunk(y));
    call.exchange();
  }
}

template <class Exec>
void Collectives<Exec>::gather_values(const Exec& exec, std::span<double> values,
                                      std::span<const std::int64_t> ends, std::string_view region) {
  const bool ascend = std::ssize(ends) == size() && ends[0] >= 0 && std::ranges::is_sorted(ends) &&
                      ends.back() == std::ssize(values);
  if (!ascend)
    throw DimensionMismatch("kformer::Collectives::gather_values: expected " + std::to_string(size()) +
                            " ends that ascend to the number of values, " + std::to_string(values.size()));
  Call call(*this, exec, "gather_values", region);
  const auto of = [&](int r) {
    const auto at = static_cast<std::size_t>(r);
    const std::int64_t begin = r > 0 ? ends[at - 1] : 0;
    return Array{reinterpret_cast<std::byte*>(values.data() + begin), ends[at] - begin, sizeof(double)};
  };
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    call.send(peer, of(rank()));
    call.receive(peer, of(peer));
  }
  call.exchange_in_host_memory();
}

template <class Exec>
std::vector<double> Collectives<Exec>::gather_values(const Exec& exec, std::span<const double> own,
                                                     std::string_view region) {
  std::vector<double> all;
  std::vector<std::int64_t> ends;
  for (int r = 0; r < size(); ++r) {
    all.insert(all.end(), own.begin(), own.end());
    ends.push_back(std::ssize(all));
  }
  gather_values(exec, all, ends, region);
  return all;
}

// After round k every rank has heard, directly or not, of the 2^k ranks before it.
template <class Exec>
void Collectives<Exec>::barrier(const Exec& exec, std::string_view region) {
  Call call(*this, exec, "barrier", region);
  exec.fence("kformer::Collectives::barrier");
  for (int distance = 1; distance < size(); distance *= 2) {
    call.send((rank() + distance) % size(), {reinterpret_cast<std::byte*>(&m_tokens[0]), 1, 1});
    call.receive((rank() - distance + size()) % size(), {reinterpret_cast<std::byte*>(&m_tokens[1]), 1, 1});
    call.exchange_in_host_memory();
  }
}

}  // namespace kformer
