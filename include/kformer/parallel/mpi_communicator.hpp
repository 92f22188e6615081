// SPDX-License-Identifier: MIT
#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kformer/parallel/communicator.hpp"

/// \file
/// Ranks of MPI. Needs `Kformer::parallel`.

namespace kformer {

/// MPI for the lifetime of the object: initialised and finalised by it, unless the program has done so before.
class MpiSession {
 public:
  /// Initialises MPI, if nobody has.
  /// \param argc of main
  /// \param argv of main
  /// \throws CommunicationError if that fails
  MpiSession(int& argc, char**& argv);
  /// Finalises MPI, if this object initialised it. After a CommunicationError that waits for ranks that may never
  /// come: call `abort` then.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;             ///< there is one MPI
  MpiSession& operator=(const MpiSession&) = delete;  ///< there is one MPI

  /// The ranks of MPI_COMM_WORLD that share the memory of this one's machine, in order; this one is among them. MPI
  /// knows them under every launcher. All ranks make the call.
  /// \throws CommunicationError if MPI fails
  static std::vector<int> ranks_on_this_machine();

  /// Ends the programs of all ranks, with this exit code.
  [[noreturn]] static void abort(int code);

 private:
  bool m_owner = false;
};

/// Options of `MpiCommunicator`.
struct MpiOptions {
  std::chrono::duration<double> timeout = std::chrono::minutes(5);  ///< of every wait for another rank
  std::string name = "world";                                       ///< in error texts
  /// Asked whenever a message has been waited for as long as that, and as long again: whether to go on waiting, such as
  /// for a rank that writes a large file. It gets the time so far. None: never
  std::function<bool(std::chrono::duration<double> waited)> wait_on{};
};

/// Ranks of an MPI communicator. It uses a duplicate, so that its messages are not mistaken for those of the program,
/// and MPI from one thread at a time (MPI_THREAD_SERIALIZED, or MPI_THREAD_FUNNELED on the main thread).
///
/// Every wait has a time-out: a rank that is missing, stopped or far behind ends the others with a sentence that names
/// the operation and the ranks that did not answer. MPI itself is asked to return errors, not to end the program.
class MpiCommunicator final : public Communicator {
 public:
  /// Waits for the other ranks of `world`, which make the same call.
  /// \param world   of the program; not MPI_COMM_NULL, and no intercommunicator
  /// \param options time-out and name
  /// \throws CommunicationError if a rank does not come in time, or MPI fails
  /// \throws NotSupported if the time-out is not positive
  explicit MpiCommunicator(MPI_Comm world, const MpiOptions& options = {});

  /// Whether MPI says at run time that it reads and writes device memory.
  bool takes_device_memory() const override;
  double exchange(const InstanceRef& exec, const ExchangeName& name, std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override;
  double begin(const InstanceRef& exec, const ExchangeName& name, std::span<const Outgoing> sends,
               std::span<const Incoming> receives) override;
  bool poll() override;
  void finish() override;
  std::unique_ptr<Communicator> subset(std::span<const int> members, const std::string& name) override;

 private:
  struct World;
  MpiCommunicator(std::shared_ptr<World> world, std::vector<int> members, int rank, int tag,
                  const std::string& name);
  static std::shared_ptr<World> duplicate(MPI_Comm world, const MpiOptions& options);
  std::string error_prefix(const ExchangeName& name) const;
  void post(const ExchangeName& name, std::span<const Outgoing> sends, std::span<const Incoming> receives);
  template <class F>
  auto remember_failure(F f);
  ExchangeName begun() const { return {m_begun->first, m_begun->second}; }
  [[noreturn]] void give_up(const ExchangeName& name, std::chrono::duration<double> waited);

  struct Peer {
    int rank;
    bool sends;  // to us
  };

  std::shared_ptr<World> m_world;  // shared with the subsets
  std::vector<int> m_members;      // ranks of the world, by ours
  int m_tag;
  // Of the messages under way; members, so that they keep their memory.
  std::vector<MPI_Request> m_requests;
  std::vector<Peer> m_peers;
  std::optional<std::pair<const char*, std::string>> m_begun;  // operation and region of what has begun
};

}  // namespace kformer
