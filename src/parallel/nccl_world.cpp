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
  if (std::uncaught_exceptions() == 0) try {
      m_world->settle();
    } catch (const CommunicationError&) {  // then there is nothing to wait for
    }
  const NcclWorld::Lock lock(m_world->m_mutex);
  std::erase(m_world->m_lines, this);
  if (m_comm) {
    const bool idle = m_under_way.empty() && !m_launching && std::uncaught_exceptions() == 0;
    if (idle && m_world->finalize(m_comm))
      ncclCommDestroy(m_comm);
    else
      ncclCommAbort(m_comm);
  }
  if (m_stream) cudaStreamDestroy(m_stream);
}

void NcclLine::launch(NcclMessages messages, cudaStream_t stream, std::span<const Outgoing> sends,
                      std::span<const Incoming> receives) {
  const NcclWorld::Lock lock(m_world->m_mutex);
  m_world->check(messages.what);
  messages.begin->record(stream);
  ncclGroupStart();
  ncclResult_t result = ncclSuccess;
  const auto keep_first = [&](ncclResult_t r) {
    if (result == ncclSuccess) result = r;
  };
  for (const Incoming& m : receives) keep_first(ncclRecv(m.data, m.bytes, ncclUint8, m.peer, m_comm, stream));
  for (const Outgoing& m : sends) keep_first(ncclSend(m.data, m.bytes, ncclUint8, m.peer, m_comm, stream));
  keep_first(ncclGroupEnd());
  m_world->require(result, m_comm, messages.what);
  m_launching_on = stream;
  m_launching = std::move(messages);
}

bool NcclLine::is_launched() {
  const NcclWorld::Lock lock(m_world->m_mutex);
  m_world->check(m_what);
  if (!m_launching) return true;
  const ncclResult_t state = m_world->state_of(m_comm);
  if (state == ncclInProgress) return false;
  m_world->require(state, m_comm, m_launching->what);
  m_launching->end->record(m_launching_on);
  m_under_way.push_back(*std::exchange(m_launching, std::nullopt));
  return true;
}

void NcclLine::await_launch() {
  const auto start = Clock::now();
  while (!is_launched()) {
    if (Clock::now() - start > m_world->m_timeout) {
      const NcclWorld::Lock lock(m_world->m_mutex);
      m_world->throw_failure(m_world->late(*m_launching));
    }
    std::this_thread::sleep_for(a_moment);
  }
}

std::unique_ptr<NcclLine> NcclLine::split(int color, int key, const std::string& what) {
  NcclWorld::Lock lock(m_world->m_mutex);
  m_world->check(what);
  ncclComm_t part = nullptr;
  m_world->require(ncclCommSplit(m_comm, color, key, &part, nullptr), m_comm, what);
  m_world->await(lock, m_comm, what);
  if (part) m_world->await_new(lock, part, what);
  lock.unlock();
  return std::make_unique<NcclLine>(m_world, part, what);
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
  ncclComm_t comm = nullptr;
  require(ncclCommInitRankConfig(&comm, size, id, rank, &config), comm, what);
  await_new(lock, comm, what);
  return comm;
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

void NcclWorld::set_failure(const std::string& sentence) {
  if (!m_failure.empty()) return;
  m_failure = sentence;
  for (NcclLine* line : m_lines) {
    if (line->m_comm) ncclCommAbort(std::exchange(line->m_comm, nullptr));
    line->m_launching.reset();
    line->m_under_way.clear();
  }
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

void NcclWorld::await_new(Lock& lock, ncclComm_t comm, const std::string& what) try {
  await(lock, comm, what);
} catch (const CommunicationError&) {
  ncclCommAbort(comm);
  throw;
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
    if (!first.end->is_over()) {
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

void NcclWorld::settle(const CudaEvent* end) {
  while (true) {
    {
      const Lock lock(m_mutex);
      look();
      if (!m_failure.empty()) throw CommunicationError(m_failure);
      const auto is_idle = [](const NcclLine* line) { return line->m_under_way.empty(); };
      if (end ? end->is_over() : std::ranges::all_of(m_lines, is_idle)) return;
    }
    std::this_thread::sleep_for(a_moment);
  }
}

}  // namespace kformer::Impl
