// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decks/engine/rank_backend.hpp"
#include "kformer/parallel/communicator.hpp"
#include "measure/memory_available.hpp"

namespace kformer::drivers {

/// What each rank of a communicator has, in their order. As many numbers of each. All ranks call it, and so meet.
std::vector<double> gather(Communicator& ranks, std::span<const double> own, const char* what);

/// The processes that run a program together: those that mpiexec or srun started, or this one alone. Only rank 0 has a
/// standard output.
class Ranks {
 public:
  /// Starts MPI if the environment says that there are several processes. Until `begin` only rank 0 has a standard error:
  /// all read the same deck, and find the same faults. What another one alone finds is said by `finish`.
  /// \throws NotSupported if there are several, and the build has no MPI
  Ranks(int& argc, char**& argv);
  /// Ends MPI.
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// This rank, from 0.
  int rank() const { return m_rank; }
  /// The number of ranks.
  int size() const { return m_size; }
  /// How many of them are on this machine.
  int on_this_machine() const { return static_cast<int>(m_machine.size()); }
  /// Whether this rank writes what a user sees.
  bool is_first() const { return m_rank == 0; }

  /// Requires as many as a deck wants; a dry run may have one.
  /// \param wanted how many
  /// \param keys   that say so, such as "'parallel.tensor' = 2"; empty: the deck has no [parallel]
  /// \param key    to set in that case
  /// \throws DeckError
  void require(std::int64_t wanted, const std::string& keys, const char* key, const char* program,
               bool dry_run) const;
  /// Requires a build, and an execution space, that have what messages go through. Called before CUDA starts: NCCL needs
  /// all kernels loaded then, unless the environment says otherwise.
  /// \param key   of the deck, such as "parallel.backend"
  /// \param space of the run
  /// \throws DeckError
  static void require_backend(RankBackend backend, const char* key, const std::string& space);
  /// Connects the ranks, all of which have read their decks, and requires that these are the same. All have a standard
  /// error from here on.
  /// \param timeout_s longest wait for another rank
  /// \param resolved  the deck, every key with its value
  /// \throws DeckError          if a key differs that is not a rank's own, such as a path or its number of threads
  /// \throws CommunicationError if a rank does not come
  void begin(double timeout_s, const std::string& resolved);
  /// Connects their devices, after Kokkos has chosen one.
  void connect_devices(RankBackend backend);
  /// Learns which ranks take memory of the same machine or GPU, after Kokkos has chosen one. All ranks call it.
  /// \param space of the run
  void find_memory(const std::string& space);
  /// What this rank may take, after `find_memory`: its part of what is free on the space; nothing if the system does not
  /// tell.
  std::optional<std::size_t> free_memory(const std::string& space) const;
  /// The ranks, after `begin`.
  const std::shared_ptr<Communicator>& world() const { return m_world; }

  /// The same of all ranks.
  std::vector<double> gather(std::span<const double> own, const char* what) {
    return drivers::gather(*m_world, own, what);
  }
  /// The text that each rank has, in their order.
  std::vector<std::string> gather_text(const std::string& own, const char* what);
  /// Requires that all ranks find the same in their files, each perhaps on a disk of its own.
  /// \param contents what identifies it, by the keys that name the files; each rank has the same keys
  /// \throws FileError
  void require_same(const std::map<std::string, std::string>& contents);
  /// Returns when all have called it.
  void barrier(const char* what) { gather({}, what); }
  /// The same, however long a rank writes before it does, up to a day. A rank that dies ends the program in any case, and
  /// so does, after the time-out, one on this machine that is stopped by a signal.
  void await_writers(const char* what) { drivers::gather(*m_patient, {}, what); }
  /// Whether it is so on any rank.
  bool any(bool own, const char* what);

  /// The reason of this rank to stop, or that another has one: all stop together.
  std::optional<std::string> agreed(const std::optional<std::string>& reason);

  /// What the exit code of the program is. If a rank has failed, this one ends the others, which would wait for it, and
  /// says why.
  int finish(int code);

 private:
  struct Session;
  bool all_work() const;
  std::vector<int> meet(int code, double timeout_s);
  [[noreturn]] void end_waiting(double timeout_s, int code);
  void await_readers(double timeout_s);
  void require_deck_of_first(const std::string& resolved, double timeout_s);
  void give_back_error();
  void say_kept_error();
  [[noreturn]] void end_all(int code);

  int m_rank = 0, m_size = 1;
  std::vector<int> m_machine{0};               // the ranks on this machine
  std::vector<int> m_processes;                // of all ranks, each on its machine
  std::vector<measure::MemoryPlace> m_places;  // of all ranks
  int m_error = -1;                            // the standard error, while it is put away
  std::FILE* m_kept = nullptr;                 // what went there in its place
  double m_timeout_s = 0;
  std::unique_ptr<Session> m_session;
  std::shared_ptr<Communicator> m_world;
  std::shared_ptr<Communicator> m_patient;  // the same ranks, without the time-out of the deck
};

/// The main function of a program of ranks.
/// \param run what it does; it returns the exit code
int main_of_ranks(int& argc, char**& argv, const std::function<int(Ranks& ranks)>& run);

}  // namespace kformer::drivers
