// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kformer/parallel/communicator.hpp"

/// \file
/// What communicators of NCCL share, and what each has. All calls of NCCL are made here, under one lock.

namespace kformer::Impl {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// A place in a stream.
class CudaEvent {
 public:
  /// \throws CommunicationError if CUDA fails, as all members
  CudaEvent();
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  /// The place behind what was launched so far.
  void record(cudaStream_t stream);
  /// Lets a stream wait for it.
  void hold(cudaStream_t stream) const;
  /// Whether the stream has come there.
  bool is_over() const;
  /// Seconds to a later one; both are over.
  double seconds_to(const CudaEvent& later) const;

 private:
  cudaEvent_t m_event = nullptr;
};

/// One exchange.
struct NcclMessages {
  std::string what;   ///< the beginning of its sentences
  std::string peers;  ///< such as "rank 1"
  std::string operation, region;
  std::shared_ptr<CommunicationLog> log;  ///< for its seconds
  std::shared_ptr<CudaEvent> begin = std::make_shared<CudaEvent>();
  std::shared_ptr<CudaEvent> end = std::make_shared<CudaEvent>();
  bool end_is_recorded = false;
  std::optional<Clock::time_point> since{};  ///< when its stream was seen to wait for it
};

class NcclWorld;

/// NCCL's communicator of some ranks, and a stream for messages that travel beside work.
class NcclLine {
 public:
  /// \param comm null if there is no other rank
  /// \param what the beginning of sentences
  NcclLine(std::shared_ptr<NcclWorld> world, ncclComm_t comm, std::string what);
  /// Waits for what is under way, unless something was thrown, and ends the communicator.
  ~NcclLine();
  NcclLine(const NcclLine&) = delete;
  NcclLine& operator=(const NcclLine&) = delete;

  /// For messages beside the work of an instance.
  cudaStream_t stream() const { return m_stream; }

  /// Hands messages to NCCL, which launches them on a stream as soon as the ranks are connected, and after those of other
  /// lines: all ranks launch in the order of their calls.
  /// \throws CommunicationError if NCCL fails, as all members
  void launch(NcclMessages messages, cudaStream_t stream, std::span<const Outgoing> sends,
              std::span<const Incoming> receives);
  /// Whether it has launched them: then what is launched on the stream afterwards follows them.
  bool is_launched();
  /// Waits for that.
  void await_launch();
  /// The communicator of those of its ranks that name the same colour, in the order of their keys; every rank makes the
  /// call, which waits for what is under way.
  std::unique_ptr<NcclLine> split(int color, int key, const std::string& what);

 private:
  friend class NcclWorld;

  bool is_idle() const { return !m_launching && m_under_way.empty(); }

  std::shared_ptr<NcclWorld> m_world;
  ncclComm_t m_comm;
  std::string m_what;
  cudaStream_t m_stream = nullptr, m_launching_on = nullptr;
  std::optional<NcclMessages> m_launching;
  std::deque<NcclMessages> m_under_way;
};

/// What all communicators share that were made of one: the time-out, the first failure, and a thread that looks at what is
/// under way, because a host that waits for a stream looks at nothing.
class NcclWorld {
 public:
  explicit NcclWorld(Seconds timeout);
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  /// A communicator of ranks that all make the call.
  ncclComm_t connect(int size, int rank, const ncclUniqueId& id, const std::string& what);

  /// \throws CommunicationError if there was a failure
  void require_health(const std::string& what) const;
  /// Remembers the first failure, and ends all messages.
  void fail(const std::string& sentence);
  /// Waits until NCCL has launched all that it was handed.
  void await_launches();
  /// Waits until all messages have arrived, or those before one event.
  /// \throws CommunicationError if they do not
  void settle(const CudaEvent* end = nullptr);

 private:
  friend class NcclLine;
  using Lock = std::unique_lock<std::mutex>;

  void set_failure(const std::string& sentence);
  [[noreturn]] void throw_failure(const std::string& sentence);
  void require(ncclResult_t result, ncclComm_t comm, const std::string& what);
  ncclResult_t state_of(ncclComm_t comm) const;
  void check(const std::string& what) const;
  void await(Lock& lock, ncclComm_t comm, const std::string& what);
  bool finalize(ncclComm_t comm) const;
  void give_up(NcclLine& line);
  std::string late(const NcclMessages& messages) const;
  void look_at(NcclLine& line);
  void look();
  void run();

  Seconds m_timeout;
  int m_device = 0;
  mutable std::mutex m_mutex;  // of what follows, of the lines, and of the calls of NCCL
  std::string m_failure;
  std::vector<NcclLine*> m_lines;
  bool m_ends = false;
  std::condition_variable m_end;
  std::thread m_thread;
};

}  // namespace kformer::Impl
