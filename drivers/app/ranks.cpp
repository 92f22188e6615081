// SPDX-License-Identifier: MIT
#include "app/ranks.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "app/program.hpp"
#include "app/say.hpp"
#include "decks/engine/deck_keys.hpp"
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

// A rank may have files, threads and memory of its own, and rank 0 alone writes results. What is in files is compared where
// they are read.
DeckKeys keys_of_all_ranks(const std::string& resolved) {
  static constexpr std::array own{"run.name",      "run.threads",        "run.walltime_s",
                                  "output.file",   "output.overwrite",   "output.compression",
                                  "memory.budget", "data.train",         "data.validation",
                                  "data.cache",    "parallel.timeout_s", "sweep.timeout_s"};
  DeckKeys keys = keys_of(resolved);
  std::erase_if(keys, [](const auto& key) {
    const bool names_file = key.first.ends_with(".path") || key.first.ends_with("].file") ||  // of prompts
                            key.first.ends_with("].expect_file");
    return names_file || std::ranges::count(own, key.first) > 0;
  });
  return keys;
}

#ifdef KFORMER_ENABLE_MPI
// MPI itself waits for ever for a rank that does not come.
void end_without_start(int) {
  end_at_once(
      "error: MPI did not start in time: a rank is stopped, or does not run; KFORMER_MPI_START_S sets how long "
      "it may take, in seconds (300)\n",
      exit_failure);
}

bool is_done_in(MPI_Request request, double timeout_s) {
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0; true; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return true;
    if (std::chrono::steady_clock::now() - start > std::chrono::duration<double>(timeout_s)) return false;
  }
}

// Until it goes out of scope.
class StartLimit {
 public:
  StartLimit() {
    const char* text = std::getenv("KFORMER_MPI_START_S");
    const int seconds = text == nullptr ? 0 : std::atoi(text);
    std::signal(SIGALRM, end_without_start);
    ::alarm(seconds > 0 ? static_cast<unsigned>(seconds) : 300);
  }
  ~StartLimit() {
    ::alarm(0);
    std::signal(SIGALRM, SIG_DFL);
  }
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;
};
#endif

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
  const StartLimit limit;
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
  m_kept = std::tmpfile();
  if (m_kept != nullptr)
    ::dup2(::fileno(m_kept), STDERR_FILENO);
  else
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

void Ranks::give_back_error() {
  if (m_error < 0) return;
  std::fflush(stderr);
  ::dup2(m_error, STDERR_FILENO);
  ::close(m_error);
  m_error = -1;
}

void Ranks::say_kept_error() {
  give_back_error();
  if (m_kept == nullptr || std::fseek(m_kept, 0, SEEK_END) != 0 || std::ftell(m_kept) <= 0) return;
  std::string text(static_cast<std::size_t>(std::ftell(m_kept)), ' ');
  if (std::fseek(m_kept, 0, SEEK_SET) != 0) return;
  text.resize(std::fread(text.data(), 1, text.size(), m_kept));
  say(stderr, "rank {} of {} cannot begin:\n{}", m_rank, m_size, text);
}

void Ranks::begin(double timeout_s, [[maybe_unused]] const std::string& resolved) {
  m_timeout_s = timeout_s;
#ifdef KFORMER_ENABLE_MPI
  if (m_size > 1) {
    await_readers(timeout_s);
    require_deck_of_first(resolved, timeout_s);
    await_readers(timeout_s);
    give_back_error();
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

void Ranks::require_same(const std::map<std::string, std::string>& contents) {
  if (m_size == 1) return;
  for (const auto& [key, content] : contents) {
    const std::vector<std::string> all = gather_text(content, "what is in files");
    const auto other = std::ranges::find_if(all, [&](const auto& text) { return text != all.front(); });
    if (other != all.end())
      throw FileError(
          fmt::format("what '{}' names is not the same on rank {} as on rank 0; give all ranks the same files",
                      key, other - all.begin()));
  }
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

#ifdef KFORMER_ENABLE_MPI
// How long a rank that cannot begin waits for others, which may still read their decks.
constexpr double longest_reading_s = 30;

// A rank comes too late.
void Ranks::end_waiting(double timeout_s, int code) {
  say_kept_error();
  say(stderr, "error: rank {} of {} waited {} s in vain until all ranks have read the deck\n", m_rank, m_size,
      timeout_s);
  end_all(code);
}

// The exit codes so far of all ranks, which call it.
std::vector<int> Ranks::meet(int code, double timeout_s) {
  std::vector<int> codes(static_cast<std::size_t>(m_size));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&code, 1, MPI_INT, codes.data(), 1, MPI_INT, MPI_COMM_WORLD, &request);
  if (!is_done_in(request, timeout_s)) end_waiting(timeout_s, code == exit_ok ? exit_failure : code);
  return codes;
}

// Until no rank has found a fault in its deck.
void Ranks::await_readers(double timeout_s) {
  const std::vector<int> codes = meet(exit_ok, timeout_s);
  const auto failed = std::ranges::find_if(codes, [](int code) { return code != exit_ok; });
  if (failed == codes.end()) return;
  // That rank says why, and ends the others.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  end_all(*failed);
}

void Ranks::require_deck_of_first(const std::string& resolved, double timeout_s) {
  std::string first = resolved;
  auto length = static_cast<std::int64_t>(first.size());
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&length, 1, MPI_INT64_T, 0, MPI_COMM_WORLD, &request);
  if (!is_done_in(request, timeout_s)) end_waiting(timeout_s, exit_failure);
  first.resize(static_cast<std::size_t>(length));
  MPI_Ibcast(first.data(), static_cast<int>(length), MPI_CHAR, 0, MPI_COMM_WORLD, &request);
  if (!is_done_in(request, timeout_s)) end_waiting(timeout_s, exit_failure);
  if (const auto difference = difference_of(keys_of_all_ranks(resolved), keys_of_all_ranks(first)))
    throw DeckError(fmt::format("error: '{}' is {} in the deck of this rank, and {} in that of rank 0",
                                difference->key, difference->value, difference->other));
}

void Ranks::end_all(int code) {
  std::fflush(nullptr);
  MpiSession::abort(code);
}
#endif

int Ranks::finish(int code) {
  if (m_size == 1 || code == exit_ok || code == exit_stopped) return code;
#ifdef KFORMER_ENABLE_MPI
  if (m_world) {
    say(stderr, "rank {} of {} ends with exit code {}, and ends the others\n", m_rank, m_size, code);
    end_all(code);
  }
  const std::vector<int> codes = meet(code, longest_reading_s);
  const auto can_begin = std::ranges::count(codes, static_cast<int>(exit_ok));
  // All ranks refuse a deck, and rank 0 has said why.
  if (can_begin == 0) return code;
  const auto first = std::ranges::find_if(codes, [](int other) { return other != exit_ok; }) - codes.begin();
  if (first == m_rank)
    say_kept_error();
  else
    std::this_thread::sleep_for(std::chrono::seconds(1));
  end_all(code);
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
