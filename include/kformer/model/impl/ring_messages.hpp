// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>
#include <Kokkos_Profiling_ProfileSection.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kformer/memory/ledger.hpp"
#include "kformer/memory/transfer.hpp"
#include "kformer/parallel/communicator.hpp"

/// \file
/// Messages that go round among ranks.

namespace kformer::Impl {

/// An array that a rank sends to the next one, and where it receives as much from the one before.
struct RingArray {
  const char* region;  ///< what the log calls it
  const void* out;     ///< null: nothing is sent
  void* in;            ///< null: nothing is received
  std::size_t bytes;
};

/// Ranks in a ring, each of which passes arrays on while it computes.
template <class Exec>
class RingMessages {
 public:
  using memory_space = typename Exec::memory_space;
  using staging_space = HostStagingSpace<memory_space>;

  /// \param ranks at least two
  /// \param bytes of all arrays of one step, at most
  /// \param ledger the memory is of the class communication: none, unless messages go through the host
  /// \param staged whether they do so although the ranks take memory of this space
  RingMessages(std::shared_ptr<Communicator> ranks, std::size_t bytes, Ledger& ledger, bool staged = false)
      : m_ranks(std::move(ranks)), m_ledger(ledger.shared_from_this()) {
    if (!staged && (host_reaches<memory_space> || m_ranks->takes_device_memory())) return;
    m_staging = ledger.allocate<staging_space>(MemoryClass::communication, "DecoderLayer::ring", 2 * bytes);
  }

  /// Begins a step: what is sent has been launched on `exec`, and stays as it is until `finish`.
  void begin(const Exec& exec, std::vector<RingArray> arrays) {
    m_arrays = std::move(arrays);
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    std::byte* next = m_staging.data();
    for (const RingArray& a : m_arrays) {
      if (a.out != nullptr) outgoing.push_back({to(), a.out, a.bytes});
      if (a.in != nullptr) incoming.push_back({from(), a.in, a.bytes});
    }
    if (stages()) {
      for (Outgoing& m : outgoing) {
        transfer<staging_space, memory_space>(exec, *m_ledger, next, m.data, m.bytes);
        m.data = std::exchange(next, next + m.bytes);
      }
      for (Incoming& m : incoming) m.data = std::exchange(next, next + m.bytes);
    }
    m_incoming = incoming;
    m_section.emplace("shift");
    m_section->start();
    m_seconds = m_ranks->begin(InstanceRef(exec).with_host_memory(stages()),
                               {"shift", m_arrays.front().region, m_ranks->shared_log()}, outgoing, incoming);
  }

  /// Waits until everything has arrived.
  void finish(const Exec& exec) {
    const auto start = std::chrono::steady_clock::now();
    m_ranks->finish();
    m_section->stop();
    m_section.reset();
    m_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    auto message = m_incoming.begin();
    for (const RingArray& a : m_arrays)
      if (stages() && a.in != nullptr)
        transfer<memory_space, staging_space>(exec, *m_ledger, a.in, (message++)->data, a.bytes);
    // The time is that of the step: it is booked once.
    for (const RingArray& a : m_arrays)
      m_ranks->shared_log()->book("shift", a.region, a.out != nullptr ? a.bytes : 0,
                                  std::exchange(m_seconds, 0));
  }

 private:
  int to() const { return (m_ranks->rank() + 1) % m_ranks->size(); }
  int from() const { return (m_ranks->rank() + m_ranks->size() - 1) % m_ranks->size(); }
  bool stages() const { return m_staging.bytes() > 0; }

  std::shared_ptr<Communicator> m_ranks;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  MemoryBlock<staging_space> m_staging;
  std::vector<RingArray> m_arrays;  // of the step that has begun
  std::vector<Incoming> m_incoming;
  std::optional<Kokkos::Profiling::ProfilingSection> m_section;  // for Kokkos Tools
  double m_seconds = 0;
};

}  // namespace kformer::Impl
