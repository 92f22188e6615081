// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/core/views.hpp"
#include "kformer/parallel/communication_log.hpp"

/// \file
/// Ranks and how they exchange bytes. `Collectives` builds sums and copies of arrays on it.

namespace kformer {

/// An instance without its type: what an exchange follows. It refers to the instance, which must outlive it.
class InstanceRef {
 public:
  /// Refers to `exec`, in whose memory the messages lie.
  template <class Exec>
    requires requires(const Exec& exec) { exec.fence("name"); }
  explicit InstanceRef(const Exec& exec)
      : m_exec(&exec), m_fence([](const void* instance) {
          static_cast<const Exec*>(instance)->fence("kformer::Communicator::exchange");
        }) {
    if constexpr (requires { exec.cuda_stream(); }) m_stream = exec.cuda_stream();
  }
  /// The same instance, with messages in host memory, or not.
  InstanceRef with_host_memory(bool host_memory = true) const {
    InstanceRef copy = *this;
    copy.m_host_memory = host_memory;
    return copy;
  }
  /// Whether the messages lie in host memory, whatever the instance works in.
  bool has_host_memory() const { return m_host_memory; }
  /// The stream of CUDA on which the instance works; null if it has none.
  void* stream() const { return m_stream; }
  /// Waits for the work launched on it.
  void fence() const { m_fence(m_exec); }

 private:
  const void* m_exec;
  void (*m_fence)(const void*);
  void* m_stream = nullptr;
  bool m_host_memory = false;
};

/// Bytes for another rank.
struct Outgoing {
  int peer = 0;                ///< who receives them
  const void* data = nullptr;  ///< the first
  std::size_t bytes = 0;       ///< how many; a message of none is not sent
};

/// Bytes from another rank.
struct Incoming {
  int peer = 0;           ///< who sends them
  void* data = nullptr;   ///< the first to write
  std::size_t bytes = 0;  ///< how many the peer sends
};

/// What an exchange is part of, for error texts.
struct ExchangeName {
  const char* operation = "exchange";          ///< such as all_reduce
  std::string_view region{};                   ///< of the caller
  std::shared_ptr<CommunicationLog> log = {};  ///< for the seconds of messages that travel on a stream
};

/// Ranks that exchange bytes. Everything else is made of `exchange`, so that a new library of messages has one function
/// to implement. All ranks make the same calls in the same order, each from one thread.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;             ///< a communicator has one owner
  Communicator& operator=(const Communicator&) = delete;  ///< a communicator has one owner

  /// This rank, from 0.
  int rank() const { return m_rank; }
  /// The number of ranks.
  int size() const { return m_size; }
  /// What error texts call it, such as data.
  const std::string& name() const { return m_name; }
  /// Whether messages may lie in memory that the host cannot reach.
  virtual bool takes_device_memory() const = 0;
  /// Whether an exchange waits for those that began before it, also on communicators that were made from the same one.
  virtual bool keeps_order() const { return false; }

  /// Sends and receives messages. Between two ranks messages arrive in the order of their sending, so the lists of
  /// both must agree. Data to send are read after the work that was launched on `exec` before; work that is launched on
  /// it afterwards sees what was received. This rank itself is no peer.
  ///
  /// MPI knows no instances: there the call fences `exec`, no other instance, and returns when all data are sent and
  /// received. Of NCCL the messages are work of the instance, and the call returns before they have arrived.
  ///
  /// \param exec     the instance that writes what is sent and reads what is received
  /// \param name     for error texts
  /// \param sends    what to send
  /// \param receives what to receive; their memory overlaps with nothing else
  /// \throws CommunicationError if a peer does not answer within the time-out, or the library of messages fails. Then
  ///         the library may hold pointers to the memory of the messages until the program ends
  /// \returns seconds that the host spent in it, without waiting for `exec`; 0 if the log of `name` gets them later
  virtual double exchange(const InstanceRef& exec, const ExchangeName& name, std::span<const Outgoing> sends,
                          std::span<const Incoming> receives) = 0;

  /// Begins an exchange, which `finish` ends: the memory of the messages is in use until then. No other exchange may
  /// begin before. Without messages that travel by themselves it is made at once.
  /// \param exec     the instance that writes what is sent
  /// \param name     for error texts
  /// \param sends    what to send
  /// \param receives what to receive; their memory overlaps with nothing else
  /// \throws CommunicationError as `exchange`
  /// \returns seconds that the host spent in it, without waiting for `exec`
  virtual double begin(const InstanceRef& exec, const ExchangeName& name, std::span<const Outgoing> sends,
                       std::span<const Incoming> receives) {
    return exchange(exec, name, sends, receives);
  }
  /// Helps the exchange that has begun along, without waiting.
  /// \throws CommunicationError if the library of messages fails
  /// \returns whether all data are sent and received, or `finish` lets only the instance wait
  virtual bool poll() { return true; }
  /// Waits until all data of the exchange that has begun are sent and received, or lets its instance wait.
  /// \throws CommunicationError as `exchange`
  virtual void finish() {}
  /// Waits until all that was exchanged has arrived, and is booked.
  /// \throws CommunicationError as `exchange`
  virtual void settle() const {}

  /// A communicator of some of the ranks, of which this is one. Every rank of this communicator makes the call, with
  /// its own members: the groups need not overlap, but each rank must make as many calls as any other. With MPI nobody
  /// waits; with NCCL every rank waits for all others.
  /// \param members ranks of this communicator, which get the ranks 0, 1, … in this order
  /// \param name    of the new communicator
  /// \throws NotSupported if a member is no rank, is named twice, or this rank is not among them
  virtual std::unique_ptr<Communicator> subset(std::span<const int> members, const std::string& name) = 0;

  /// What was sent, after `settle`.
  const CommunicationLog& log() const {
    settle();
    return *m_log;
  }
  /// The same, in which `Collectives` books.
  const std::shared_ptr<CommunicationLog>& shared_log() const { return m_log; }

 protected:
  /// Rank `rank` of `size`.
  Communicator(int rank, int size, std::string name) : m_rank(rank), m_size(size), m_name(std::move(name)) {}
  /// The place of this rank among `members`.
  /// \throws NotSupported as `subset`
  int checked_member(std::span<const int> members, const std::string& name) const;

 private:
  int m_rank, m_size;
  std::string m_name;
  std::shared_ptr<CommunicationLog> m_log = std::make_shared<CommunicationLog>();
};

/// A rank that has no others to talk to: the only one, or an imagined one whose memory is forecast.
class LoneCommunicator final : public Communicator {
 public:
  /// The only rank.
  LoneCommunicator() : LoneCommunicator(0, 1) {}
  /// Rank `rank` of `size` that are not there: what it is used for must only count memory.
  /// \throws NotSupported if there can be no such rank
  LoneCommunicator(int rank, int size, const std::string& name = "world");

  bool takes_device_memory() const override { return true; }
  /// \throws NotSupported if there is a message
  double exchange(const InstanceRef& exec, const ExchangeName& name, std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override;
  std::unique_ptr<Communicator> subset(std::span<const int> members, const std::string& name) override;
};

}  // namespace kformer
