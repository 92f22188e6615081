// SPDX-License-Identifier: MIT
#include "app/ranks.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "app/program.hpp"
#include "app/say.hpp"
#include "kformer/core/error.hpp"
#ifdef KFORMER_ENABLE_MPI
#include "kformer/parallel/mpi_communicator.hpp"
#endif
#ifdef KFORMER_ENABLE_NCCL
#include "kformer/parallel/nccl_communicator.hpp"
#endif

namespace kformer::drivers {

namespace {

// By the first variable that is set: of Open MPI, of those that speak PMI (MPICH), of Slurm.
int started() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* text = std::getenv(variable)) return std::max(1, std::atoi(text));
  return 1;
}

// By a signal: it neither computes nor writes.
bool is_stopped(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));  // 1234 (name) T …
  std::string text;
  std::getline(file, text);
  const auto name = text.rfind(')');
  return name != text.npos && text.compare(name, 3, ") T") == 0;
}

void send_to_nowhere(int file) {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, file);
  ::close(nowhere);
}

}  // namespace

#ifdef KFORMER_ENABLE_MPI
struct Ranks::Session : MpiSession {
  using MpiSession::MpiSession;
};
#else
struct Ranks::Session {};
#endif

Ranks::Ranks([[maybe_unused]] int& argc, [[maybe_unused]] char**& argv) {
  if (started() == 1) return;
#ifdef KFORMER_ENABLE_MPI
  m_session = std::make_unique<Session>(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &m_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &m_size);
  m_machine = MpiSession::ranks_on_this_machine();
  const int own = ::getpid();
  m_processes.resize(static_cast<std::size_t>(m_size));
  MPI_Allgather(&own, 1, MPI_INT, m_processes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  if (m_rank == 0) return;
  std::fflush(nullptr);
  m_error = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  send_to_nowhere(STDOUT_FILENO);
  send_to_nowhere(STDERR_FILENO);
#else
  throw NotSupported(
      fmt::format("{} processes were started together, but this build has no MPI; configure it with "
                  "Kformer_ENABLE_MPI=ON",
                  started()));
#endif
}

Ranks::~Ranks() = default;

void Ranks::require(std::int64_t wanted, const std::string& keys, const char* key, const char* program,
                    bool dry_run) const {
  if (m_size == wanted || (dry_run && m_size == 1)) return;
  if (keys.empty())
    throw DeckError(
        fmt::format("error: {} ranks were started, but the deck has no [parallel]; set {} = {}, or start one",
                    m_size, key, m_size));
  throw DeckError(fmt::format("error: {} needs {} ranks, but {} {} started; run mpiexec -n {} {} …", keys,
                              wanted, m_size, m_size == 1 ? "was" : "were", wanted, program));
}

void Ranks::require_backend(RankBackend backend, const char* key, [[maybe_unused]] const std::string& space) {
  if (backend != RankBackend::nccl) return;
#ifdef KFORMER_ENABLE_NCCL
  if (space != "cuda")
    throw DeckError(fmt::format(
        "error: '{}' = \"nccl\" moves the memory of GPUs, but the run is on {}; take \"mpi\"", key, space));
  // Else the first launch of a kernel may wait for messages on the device (CUDA Programming Guide, "Lazy Loading").
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
#else
  throw DeckError(fmt::format(
      "error: '{}' = \"nccl\" needs a build with NCCL; configure it with Kformer_ENABLE_NCCL=ON, or take "
      "\"mpi\"",
      key));
#endif
}

bool Ranks::all_work() const {
  return std::ranges::none_of(
      m_machine, [&](int rank) { return is_stopped(m_processes[static_cast<std::size_t>(rank)]); });
}

void Ranks::connect_devices([[maybe_unused]] RankBackend backend) {
#ifdef KFORMER_ENABLE_NCCL
  if (m_size > 1 && backend == RankBackend::nccl)
    m_world =
        std::make_shared<NcclCommunicator>(m_world, NcclOptions{std::chrono::duration<double>(m_timeout_s)});
#endif
}

void Ranks::begin(double timeout_s) {
  m_timeout_s = timeout_s;
  if (m_error >= 0) {
    std::fflush(stderr);
    ::dup2(m_error, STDERR_FILENO);
    ::close(m_error);
    m_error = -1;
  }
#ifdef KFORMER_ENABLE_MPI
  if (m_size > 1) {
    m_world = std::make_shared<MpiCommunicator>(
        MPI_COMM_WORLD, MpiOptions{.timeout = std::chrono::duration<double>(timeout_s)});
    // Ranks wait no longer for one that writes it.
    static constexpr std::chrono::hours longest_file(24);
    m_patient = std::make_shared<MpiCommunicator>(
        MPI_COMM_WORLD,
        MpiOptions{.timeout = std::chrono::duration<double>(timeout_s),
                   .name = "writers",
                   .wait_on = [this](const auto& waited) { return waited < longest_file && all_work(); }});
    return;
  }
#endif
  m_patient = m_world = std::make_shared<LoneCommunicator>();
}

void Ranks::find_memory(const std::string& space) {
  const std::array own{static_cast<double>(m_machine.front()),
                       static_cast<double>(measure::device_address(space))};
  // The first rank has opened the files of the run, which may take longer than the time-out of the deck.
  const std::vector<double> all = drivers::gather(*m_patient, own, "the places of memory");
  m_places.clear();
  for (std::size_t i = 0; i < all.size(); i += own.size())
    m_places.push_back({static_cast<int>(all[i]), static_cast<std::int64_t>(all[i + 1])});
}

std::optional<std::size_t> Ranks::free_memory(const std::string& space) const {
  auto free = measure::memory_available(space);
  if (free) *free = measure::part_of_memory(*free, m_places.at(static_cast<std::size_t>(m_rank)), m_places);
  return free;
}

std::vector<double> gather(Communicator& ranks, std::span<const double> own, const char* what) {
  const int size = ranks.size(), rank = ranks.rank();
  // One number at least, so that all meet.
  std::vector<double> mine(own.begin(), own.end());
  mine.push_back(0);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(size));
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  const std::size_t bytes = mine.size() * sizeof(double);
  for (int peer = 0; peer < size; ++peer) {
    double* place = all.data() + mine.size() * static_cast<std::size_t>(peer);
    if (peer == rank) {
      std::ranges::copy(mine, place);
      continue;
    }
    sends.push_back({peer, mine.data(), bytes});
    receives.push_back({peer, place, bytes});
  }
  if (size > 1)
    ranks.exchange(InstanceRef(Kokkos::DefaultHostExecutionSpace()).with_host_memory(), {"gather", what}, sends,
                   receives);
  std::vector<double> values;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % mine.size() < own.size()) values.push_back(all[i]);
  return values;
}

std::vector<std::string> Ranks::gather_text(const std::string& own, const char* what) {
  const auto length = static_cast<double>(own.size());
  const std::vector<double> lengths = gather(std::span(&length, 1), what);
  std::vector<double> letters(static_cast<std::size_t>(std::ranges::max(lengths)));
  std::ranges::copy(own, letters.begin());
  const std::vector<double> all = gather(letters, what);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * letters.size());
    texts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(lengths[r]));
  }
  return texts;
}

bool Ranks::any(bool own, const char* what) {
  if (m_size == 1) return own;
  const double value = own ? 1 : 0;
  const auto all = gather(std::span(&value, 1), what);
  return std::ranges::count(all, 1.0) > 0;
}

std::optional<std::string> Ranks::agreed(const std::optional<std::string>& reason) {
  if (!any(reason.has_value(), "whether to stop")) return {};
  return reason.value_or("another rank stops");
}

int Ranks::finish(int code) {
  if (m_size == 1 || code == exit_ok || code == exit_stopped) return code;
#ifdef KFORMER_ENABLE_MPI
  // All ranks refuse a deck, and rank 0 says why, if the launcher gives it the time.
  if (!m_world && m_rank > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (m_world) say(stderr, "rank {} of {} ends with exit code {}, and ends the others\n", m_rank, m_size, code);
  std::fflush(nullptr);
  if (m_world) MpiSession::abort(code);
#endif
  return code;
}

int main_of_ranks(int& argc, char**& argv, const std::function<int(Ranks& ranks)>& run) {
  std::optional<Ranks> ranks;
  const int started = guarded([&] {
    ranks.emplace(argc, argv);
    return exit_ok;
  });
  return ranks ? ranks->finish(run(*ranks)) : started;
}

}  // namespace kformer::drivers
