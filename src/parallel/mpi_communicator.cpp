// SPDX-License-Identifier: MIT
#include "kformer/parallel/mpi_communicator.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>

#include "parallel/sentences.hpp"

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace kformer {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Counts of MPI are ints.
constexpr std::size_t most_bytes = std::size_t(1) << 30;
// That every MPI has.
constexpr int most_tag = 32767;

// `what` returns the beginning of the sentence.
template <class What>
void require_success(int code, What what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationError(what() + ": MPI failed: " + std::string(text, static_cast<std::size_t>(length)));
}

template <class What>
bool are_done(std::vector<MPI_Request>& requests, What what) {
  int done = 0;
  require_success(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
                  what);
  return done != 0;
}

using WaitOn = decltype(MpiOptions::wait_on);

// Polls until all requests are done; otherwise returns how long it waited in vain. Ranks may outnumber cores, so that one
// that waits for more than a moment leaves its core to the others. It sleeps: who yields to busy programs gets the core
// back after their time slices, milliseconds later.
template <class What>
std::optional<Seconds> waited_in_vain(std::vector<MPI_Request>& requests, Seconds timeout, What what,
                                      const WaitOn& wait_on = {}) {
  const auto start = Clock::now();
  Seconds patience = timeout;
  while (true) {
    if (are_done(requests, what)) return {};
    const Seconds waited = Clock::now() - start;
    if (waited > patience) {
      if (!wait_on || !wait_on(waited)) return patience;
      patience += timeout;
    }
    if (waited > std::chrono::microseconds(20)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized) return;
  int provided = 0;
  require_success(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided),
                  [] { return std::string("kformer::MpiSession"); });
  m_owner = true;
}

MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (m_owner && !finalized) MPI_Finalize();
}

std::vector<int> MpiSession::ranks_on_this_machine() {
  const auto what = [] { return std::string("kformer::MpiSession::ranks_on_this_machine"); };
  MPI_Comm machine = MPI_COMM_NULL;
  int rank = 0, size = 0;
  require_success(MPI_Comm_rank(MPI_COMM_WORLD, &rank), what);
  require_success(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine),
                  what);
  require_success(MPI_Comm_size(machine, &size), what);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  require_success(MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, machine), what);
  require_success(MPI_Comm_free(&machine), what);
  return ranks;
}

void MpiSession::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

// A duplicate of the program's communicator.
struct MpiCommunicator::World {
  MPI_Comm comm = MPI_COMM_NULL;
  Seconds timeout{};
  WaitOn wait_on;
  int next_tag = 1;
  std::string failure;  // of an earlier exchange

  World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  // Freeing is collective: where a rank is lost nobody may wait for it. MPICH ends the program if this rank has not received
  // all messages, because it gave up before.
  ~World() {
    int finalized = 0, unread = 0;
    MPI_Finalized(&finalized);
    if (comm == MPI_COMM_NULL || !failure.empty() || finalized) return;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &unread, MPI_STATUS_IGNORE);
    if (!unread) MPI_Comm_free(&comm);
  }
};

std::shared_ptr<MpiCommunicator::World> MpiCommunicator::duplicate(MPI_Comm world, const MpiOptions& options) {
  const auto what = [&] { return "kformer::MpiCommunicator '" + options.name + "'"; };
  if (!(options.timeout.count() > 0))
    throw NotSupported(what() + ": the time-out must be positive, got " + Impl::seconds_text(options.timeout));
  const auto copy = std::make_shared<World>();
  copy->timeout = options.timeout;
  copy->wait_on = options.wait_on;
  std::vector<MPI_Request> requests(1, MPI_REQUEST_NULL);
  require_success(MPI_Comm_idup(world, &copy->comm, requests.data()), what);
  if (waited_in_vain(requests, options.timeout, what)) {
    copy->comm = MPI_COMM_NULL;  // not valid yet
    throw CommunicationError(what() + ": not all ranks have made it after " +
                             Impl::seconds_text(options.timeout) + "; every rank of the MPI communicator must");
  }
  require_success(MPI_Comm_set_errhandler(copy->comm, MPI_ERRORS_RETURN), what);
  return copy;
}

namespace {

std::string class_name() { return "kformer::MpiCommunicator"; }

int rank_in(MPI_Comm comm) {
  int rank = 0;
  require_success(MPI_Comm_rank(comm, &rank), class_name);
  return rank;
}

std::vector<int> all_ranks_of(MPI_Comm comm) {
  int size = 1;
  require_success(MPI_Comm_size(comm, &size), class_name);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm world, const MpiOptions& options)
    : MpiCommunicator(duplicate(world, options), all_ranks_of(world), rank_in(world), 0, options.name) {}

MpiCommunicator::MpiCommunicator(std::shared_ptr<World> world, std::vector<int> members, int rank, int tag,
                                 const std::string& name)
    : Communicator(rank, static_cast<int>(members.size()), name),
      m_world(std::move(world)),
      m_members(std::move(members)),
      m_tag(tag) {
  m_requests.reserve(2 * m_members.size());
  m_peers.reserve(2 * m_members.size());
}

bool MpiCommunicator::takes_device_memory() const {
#if defined(OPEN_MPI) && defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#elif defined(MPICH_NUMVERSION) && defined(MPIX_GPU_SUPPORT_CUDA)
  int supported = 0;
  return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && supported;
#else
  return false;
#endif
}

std::string MpiCommunicator::error_prefix(const ExchangeName& exchange_name) const {
  return Impl::exchange_text("kformer::MpiCommunicator", exchange_name, *this);
}

// After an error nothing goes on.
template <class F>
auto MpiCommunicator::remember_failure(F f) {
  try {
    return f();
  } catch (const CommunicationError& error) {
    if (m_world->failure.empty()) m_world->failure = error.what();
    throw;
  }
}

double MpiCommunicator::exchange(const InstanceRef& exec, const ExchangeName& exchange_name,
                                 std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  const double posting = begin(exec, exchange_name, sends, receives);
  const auto start = Clock::now();
  finish();
  return posting + Seconds(Clock::now() - start).count();
}

double MpiCommunicator::begin(const InstanceRef& exec, const ExchangeName& exchange_name,
                              std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  if (!m_world->failure.empty())
    throw CommunicationError(error_prefix(exchange_name) +
                             " cannot go on after an earlier error: " + m_world->failure);
  if (m_begun)
    throw NotSupported(error_prefix(exchange_name) + " cannot begin: " + m_begun->first + " of " +
                       m_begun->second + " is under way; finish it first");
  exec.fence();
  const auto start = Clock::now();
  m_begun.emplace(exchange_name.operation, exchange_name.region);
  remember_failure([&] { post(exchange_name, sends, receives); });
  return Seconds(Clock::now() - start).count();
}

bool MpiCommunicator::poll() {
  return !m_begun ||
         remember_failure([&] { return are_done(m_requests, [&] { return error_prefix(begun()); }); });
}

void MpiCommunicator::finish() {
  if (!m_begun) return;
  remember_failure([&] {
    const auto waited =
        waited_in_vain(m_requests, m_world->timeout, [&] { return error_prefix(begun()); }, m_world->wait_on);
    if (waited) give_up(begun(), *waited);
  });
  m_begun.reset();
}

void MpiCommunicator::post(const ExchangeName& exchange_name, std::span<const Outgoing> sends,
                           std::span<const Incoming> receives) {
  m_requests.clear();
  m_peers.clear();
  const auto in_pieces = [&](int peer, std::size_t bytes, bool peer_sends, auto start) {
    for (std::size_t at = 0; at < bytes; at += most_bytes) {
      m_requests.push_back(MPI_REQUEST_NULL);
      m_peers.push_back({peer, peer_sends});
      const int code = start(at, static_cast<int>(std::min(most_bytes, bytes - at)),
                             m_members[static_cast<std::size_t>(peer)], &m_requests.back());
      require_success(code, [&] { return error_prefix(exchange_name); });
    }
  };
  for (const Incoming& m : receives)
    in_pieces(m.peer, m.bytes, true, [&](std::size_t at, int count, int peer, MPI_Request* request) {
      return MPI_Irecv(static_cast<std::byte*>(m.data) + at, count, MPI_BYTE, peer, m_tag, m_world->comm,
                       request);
    });
  for (const Outgoing& m : sends)
    in_pieces(m.peer, m.bytes, false, [&](std::size_t at, int count, int peer, MPI_Request* request) {
      return MPI_Isend(static_cast<const std::byte*>(m.data) + at, count, MPI_BYTE, peer, m_tag, m_world->comm,
                       request);
    });
}

// Names those who did not answer.
void MpiCommunicator::give_up(const ExchangeName& exchange_name, Seconds waited) {
  std::set<int> silent, deaf;
  for (std::size_t i = 0; i < m_requests.size(); ++i) {
    int done = 0;
    MPI_Test(&m_requests[i], &done, MPI_STATUS_IGNORE);
    if (done) continue;
    (m_peers[i].sends ? silent : deaf).insert(m_peers[i].rank);
    // Sends cannot be taken back.
    if (m_peers[i].sends) {
      MPI_Cancel(&m_requests[i]);
      MPI_Request_free(&m_requests[i]);
    }
  }
  std::string text = error_prefix(exchange_name) + " waited " + Impl::seconds_text(waited) + " in vain";
  if (!silent.empty()) text += " for data from " + Impl::ranks_text(silent);
  if (!deaf.empty())
    text += std::string(silent.empty() ? "" : " and") + " for " + Impl::ranks_text(deaf) + " to take data";
  throw CommunicationError(text + Impl::look_there);
}

std::unique_ptr<Communicator> MpiCommunicator::subset(std::span<const int> members, const std::string& name) {
  const int place = checked_member(members, name);
  std::vector<int> of_world;
  for (const int member : members) of_world.push_back(m_members[static_cast<std::size_t>(member)]);
  // Every rank makes as many calls, so the members of a subset find the same tag.
  if (m_world->next_tag > most_tag)
    throw NotSupported("kformer::MpiCommunicator::subset: '" + name +
                       "' would be one too many: there are tags for " + std::to_string(most_tag) +
                       " subsets; make them once");
  return std::unique_ptr<Communicator>(
      new MpiCommunicator(m_world, std::move(of_world), place, m_world->next_tag++, name));
}

}  // namespace kformer
