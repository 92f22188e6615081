// SPDX-License-Identifier: MIT
#include "parallel/nccl_world.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "kformer/core/error.hpp"
#include "parallel/sentences.hpp"

namespace kformer::Impl {

namespace {

constexpr auto a_moment = std::chrono::microseconds(20);

void require_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // otherwise the check of the next launch finds it
  throw CommunicationError(std::string("kformer::NcclCommunicator: ") + call +
                           ": CUDA failed: " + cudaGetErrorString(code));
}

// A communicator that is being made, and is given up unless it is taken.
struct NewComm {
  NewComm() = default;
  ~NewComm() {
    if (comm) ncclCommAbort(comm);
  }
  NewComm(const NewComm&) = delete;
  NewComm& operator=(const NewComm&) = delete;
  ncclComm_t take() { return std::exchange(comm, nullptr); }

  ncclComm_t comm = nullptr;
};

}  // namespace

CudaEvent::CudaEvent() { require_cuda(cudaEventCreate(&m_event), "cudaEventCreate"); }
CudaEvent::~CudaEvent() { cudaEventDestroy(m_event); }
void CudaEvent::record(cudaStream_t stream) {
  require_cuda(cudaEventRecord(m_event, stream), "cudaEventRecord");
}
void CudaEvent::hold(cudaStream_t stream) const {
  require_cuda(cudaStreamWaitEvent(stream, m_event, 0), "cudaStreamWaitEvent");
}
bool CudaEvent::is_over() const {
  const cudaError_t code = cudaEventQuery(m_event);
  if (code == cudaErrorNotReady) return false;
  require_cuda(code, "cudaEventQuery");
  return true;
}
double CudaEvent::seconds_to(const CudaEvent& later) const {
  float milliseconds = 0;
  require_cuda(cudaEventElapsedTime(&milliseconds, m_event, later.m_event), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

NcclLine::NcclLine(std::shared_ptr<NcclWorld> world, ncclComm_t comm, std::string what)
    : m_world(std::move(world)), m_comm(comm), m_what(std::move(what)) {
  // One that does not wait for the default stream.
  if (m_comm)
    require_cuda(cudaStreamCreateWithFlags(&m_stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const NcclWorld::Lock lock(m_world->m_mutex);
  m_world->m_lines.push_back(this);
}

NcclLine::~NcclLine() {
  // Who unwinds has peers that may never answer.
  const bool unwinds = std::uncaught_exceptions() > 0;
  if (!unwinds) try {
      m_world->settle();
    } catch (const CommunicationError&) {  // then there is nothing to wait for
    }
  const NcclWorld::Lock lock(m_world->m_mutex);
  if (m_comm) {
    if (!unwinds && is_idle() && m_world->finalize(m_comm))
      ncclCommDestroy(m_comm);
    else
      m_world->give_up(*this);
  }
  std::erase(m_world->m_lines, this);
  if (m_stream) cudaStreamDestroy(m_stream);
}

// Events are recorded without the lock: on a full stream that waits for the work before, which may be messages that only a
// thread with the lock can end.
void NcclLine::launch(NcclMessages messages, cudaStream_t stream, std::span<const Outgoing> sends,
                      std::span<const Incoming> receives) {
  m_world->await_launches();
  messages.begin->record(stream);
  const NcclWorld::Lock lock(m_world->m_mutex);
  m_world->check(messages.what);
  ncclGroupStart();
  ncclResult_t result = ncclSuccess;
  const auto keep_first = [&](ncclResult_t r) {
    if (result == ncclSuccess) result = r;
  };
  for (const Incoming& m : receives)
    if (m.bytes > 0) keep_first(ncclRecv(m.data, m.bytes, ncclUint8, m.peer, m_comm, stream));
  for (const Outgoing& m : sends)
    if (m.bytes > 0) keep_first(ncclSend(m.data, m.bytes, ncclUint8, m.peer, m_comm, stream));
  keep_first(ncclGroupEnd());
  m_world->require(result, m_comm, messages.what);
  m_launching_on = stream;
  m_launching = std::move(messages);
}

bool NcclLine::is_launched() {
  std::shared_ptr<CudaEvent> end;
  {
    const NcclWorld::Lock lock(m_world->m_mutex);
    m_world->check(m_what);
    if (!m_launching) return true;
    const ncclResult_t state = m_world->state_of(m_comm);
    if (state == ncclInProgress) return false;
    m_world->require(state, m_comm, m_launching->what);
    end = m_launching->end;
    m_under_way.push_back(*std::exchange(m_launching, std::nullopt));
  }
  end->record(m_launching_on);
  const NcclWorld::Lock lock(m_world->m_mutex);
  // After a failure there are none.
  if (!m_under_way.empty()) m_under_way.back().end_is_recorded = true;
  return true;
}

void NcclLine::await_launch() {
  const auto start = Clock::now();
  while (!is_launched()) {
    if (Clock::now() - start > m_world->m_timeout) {
      const NcclWorld::Lock lock(m_world->m_mutex);
      m_world->check(m_what);
      m_world->throw_failure(m_world->late(*m_launching));
    }
    std::this_thread::sleep_for(a_moment);
  }
}

std::unique_ptr<NcclLine> NcclLine::split(int color, int key, const std::string& what) {
  // NCCL splits none that has messages under way.
  m_world->settle();
  NcclWorld::Lock lock(m_world->m_mutex);
  m_world->check(what);
  NewComm part;
  m_world->require(ncclCommSplit(m_comm, color, key, &part.comm, nullptr), m_comm, what);
  m_world->await(lock, m_comm, what);
  if (part.comm) m_world->await(lock, part.comm, what);
  lock.unlock();
  return std::make_unique<NcclLine>(m_world, part.take(), what);
}

NcclWorld::NcclWorld(Seconds timeout) : m_timeout(timeout) {
  require_cuda(cudaGetDevice(&m_device), "cudaGetDevice");
  m_thread = std::thread([this] { run(); });
}

NcclWorld::~NcclWorld() {
  {
    const Lock lock(m_mutex);
    m_ends = true;
  }
  m_end.notify_one();
  m_thread.join();
}

// The device of a thread is its own; this one must not make a context on another.
void NcclWorld::run() {
  cudaSetDevice(m_device);
  const Seconds pause = std::min<Seconds>(m_timeout / 10, std::chrono::milliseconds(20));
  Lock lock(m_mutex);
  while (!m_end.wait_for(lock, pause, [this] { return m_ends; })) look();
}

ncclComm_t NcclWorld::connect(int size, int rank, const ncclUniqueId& id, const std::string& what) {
  Lock lock(m_mutex);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that every wait is ours
  NewComm made;
  require(ncclCommInitRankConfig(&made.comm, size, id, rank, &config), made.comm, what);
  await(lock, made.comm, what);
  return made.take();
}

void NcclWorld::require_health(const std::string& what) const {
  const Lock lock(m_mutex);
  check(what);
}

void NcclWorld::check(const std::string& what) const {
  if (!m_failure.empty()) throw CommunicationError(what + " cannot go on after an earlier error: " + m_failure);
}

void NcclWorld::fail(const std::string& sentence) {
  const Lock lock(m_mutex);
  set_failure(sentence);
}

// Together: the end of one communicator waits for the device, and so for the messages of the others. One that launches
// comes last, because it may wait for them, too.
void NcclWorld::set_failure(const std::string& sentence) {
  if (!m_failure.empty()) return;
  m_failure = sentence;
  std::ranges::partition(m_lines, [](const NcclLine* line) { return !line->m_launching; });
  ncclGroupStart();
  for (NcclLine* line : m_lines) {
    if (line->m_comm) ncclCommAbort(std::exchange(line->m_comm, nullptr));
    line->m_launching.reset();
    line->m_under_way.clear();
  }
  ncclGroupEnd();
}

// The others can go on only if nothing is under way.
void NcclWorld::give_up(NcclLine& line) {
  if (std::ranges::all_of(m_lines, &NcclLine::is_idle))
    ncclCommAbort(std::exchange(line.m_comm, nullptr));
  else
    set_failure(line.m_what + " ended before its messages");
}

void NcclWorld::throw_failure(const std::string& sentence) {
  set_failure(sentence);
  throw CommunicationError(m_failure);
}

void NcclWorld::require(ncclResult_t result, ncclComm_t comm, const std::string& what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string sentence = what + ": NCCL failed: " + ncclGetErrorString(result);
  if (const std::string last = ncclGetLastError(comm); !last.empty()) sentence += ": " + last;
  throw_failure(sentence);
}

ncclResult_t NcclWorld::state_of(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  return asked == ncclSuccess ? state : asked;
}

// Without the lock in between, so that others are looked at.
void NcclWorld::await(Lock& lock, ncclComm_t comm, const std::string& what) {
  const auto start = Clock::now();
  for (ncclResult_t state; (state = state_of(comm)) != ncclSuccess;) {
    require(state, comm, what);
    if (Clock::now() - start > m_timeout)
      throw_failure(what + ": not all ranks have made it after " + seconds_text(m_timeout) +
                    "; every rank of the communicator must");
    lock.unlock();
    std::this_thread::sleep_for(a_moment);
    lock.lock();
    check(what);
  }
}

bool NcclWorld::finalize(ncclComm_t comm) const {
  const auto start = Clock::now();
  for (ncclResult_t state = ncclCommFinalize(comm); state != ncclSuccess; state = state_of(comm)) {
    if (state != ncclInProgress || Clock::now() - start > m_timeout) return false;
    std::this_thread::sleep_for(a_moment);
  }
  return true;
}

std::string NcclWorld::late(const NcclMessages& messages) const {
  return messages.what + " waited " + seconds_text(m_timeout) + " in vain for " + messages.peers + look_there;
}

// Books what has ended, and notices what is late.
void NcclWorld::look_at(NcclLine& line) {
  while (!line.m_under_way.empty()) {
    NcclMessages& first = line.m_under_way.front();
    if (!first.since && !first.begin->is_over()) return;
    if (!first.since) first.since = Clock::now();
    if (!first.end_is_recorded || !first.end->is_over()) {
      if (Clock::now() - *first.since > m_timeout) set_failure(late(first));
      return;
    }
    if (first.log) first.log->add_seconds(first.operation, first.region, first.begin->seconds_to(*first.end));
    line.m_under_way.pop_front();
  }
}

void NcclWorld::look() try {
  for (NcclLine* line : m_lines) {
    if (line->m_comm) require(state_of(line->m_comm), line->m_comm, line->m_what);
    look_at(*line);
  }
} catch (const CommunicationError& error) {
  set_failure(error.what());
}

void NcclWorld::await_launches() {
  std::vector<NcclLine*> lines;
  {
    const Lock lock(m_mutex);
    lines = m_lines;
  }
  for (NcclLine* line : lines) line->await_launch();
}

void NcclWorld::settle(const CudaEvent* end) {
  const auto require_no_failure = [&] {
    if (!m_failure.empty()) throw CommunicationError(m_failure);
  };
  {
    const Lock lock(m_mutex);
    look();
    require_no_failure();
  }
  await_launches();
  while (true) {
    {
      const Lock lock(m_mutex);
      look();
      require_no_failure();
      if (end ? end->is_over() : std::ranges::all_of(m_lines, &NcclLine::is_idle)) return;
    }
    std::this_thread::sleep_for(a_moment);
  }
}

}  // namespace kformer::Impl
