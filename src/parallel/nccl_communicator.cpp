// SPDX-License-Identifier: MIT
#include "kformer/parallel/nccl_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/nccl_world.hpp"
#include "parallel/sentences.hpp"

namespace kformer {

namespace {

constexpr const char* class_name = "kformer::NcclCommunicator";

std::string named(const std::string& name) { return std::string(class_name) + " '" + name + "'"; }

// Rank 0 tells it to all.
ncclUniqueId agreed_id(Communicator& host) {
  ncclUniqueId id{};
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  if (host.rank() == 0) {
    if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess)
      throw CommunicationError(named(host.name()) + ": NCCL failed: " + ncclGetErrorString(code));
    for (int peer = 1; peer < host.size(); ++peer) sends.push_back({peer, &id, sizeof id});
  } else {
    receives.push_back({0, &id, sizeof id});
  }
  const Kokkos::DefaultHostExecutionSpace exec;
  host.exchange(InstanceRef(exec).with_host_memory(), {"connect"}, sends, receives);
  return id;
}

std::shared_ptr<Impl::NcclWorld> new_world(const std::shared_ptr<Communicator>& host,
                                           const NcclOptions& options) {
  if (!host)
    throw NotSupported(std::string(class_name) + ": there is no host communicator; give it one of MPI");
  if (!(options.timeout.count() > 0))
    throw NotSupported(named(host->name()) + ": the time-out must be positive, got " +
                       Impl::seconds_text(options.timeout));
  return std::make_shared<Impl::NcclWorld>(options.timeout);
}

std::unique_ptr<Impl::NcclLine> first_line(const std::shared_ptr<Impl::NcclWorld>& world, Communicator& host) {
  const std::string what = named(host.name());
  ncclComm_t comm = nullptr;
  if (host.size() > 1) comm = world->connect(host.size(), host.rank(), agreed_id(host), what);
  return std::make_unique<Impl::NcclLine>(world, comm, what);
}

bool is_on_device(const void* data) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) == cudaSuccess)
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  cudaGetLastError();
  return false;
}

}  // namespace

// An exchange that was begun.
struct NcclCommunicator::Begun {
  const char* operation;
  std::string region;
  bool on_host;
  cudaStream_t stream = nullptr;              // of the instance
  std::shared_ptr<Impl::CudaEvent> end = {};  // of the messages

  ExchangeName name() const { return {operation, region}; }
};

NcclCommunicator::NcclCommunicator(std::shared_ptr<Communicator> host, const NcclOptions& options)
    : NcclCommunicator(host, new_world(host, options), nullptr) {
  m_line = first_line(m_world, *m_host);
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<Communicator> host, std::shared_ptr<Impl::NcclWorld> world,
                                   std::unique_ptr<Impl::NcclLine> line)
    : Communicator(host->rank(), host->size(), host->name()),
      m_host(std::move(host)),
      m_world(std::move(world)),
      m_line(std::move(line)) {}

NcclCommunicator::~NcclCommunicator() = default;

std::string NcclCommunicator::prefix(const ExchangeName& exchange_name) const {
  return Impl::exchange_text(class_name, exchange_name, *this);
}

// After an error on one way nothing goes on, on either.
template <class F>
auto NcclCommunicator::through_host(F f) {
  try {
    return f();
  } catch (const CommunicationError& error) {
    m_world->fail(error.what());
    throw;
  }
}

void NcclCommunicator::require_ready(const ExchangeName& exchange_name) const {
  m_world->require_health(prefix(exchange_name));
  if (m_begun)
    throw NotSupported(prefix(exchange_name) + " cannot begin: " + m_begun->operation + " of " +
                       m_begun->region + " is under way; finish it first");
}

// Of an instance of the device they lie there.
void NcclCommunicator::require_device_memory(const ExchangeName& exchange_name, std::span<const Outgoing> sends,
                                             std::span<const Incoming> receives) const {
  const auto is_reached = [](const auto& message) { return is_on_device(message.data); };
  if (!std::ranges::all_of(sends, is_reached) || !std::ranges::all_of(receives, is_reached))
    throw NotSupported(prefix(exchange_name) +
                       ": a message is not in device memory, which NCCL moves; take the communicator of MPI");
}

Impl::NcclMessages NcclCommunicator::messages(const ExchangeName& exchange_name,
                                              std::span<const Outgoing> sends,
                                              std::span<const Incoming> receives) const {
  std::set<int> peers;
  for (const Outgoing& m : sends) peers.insert(m.peer);
  for (const Incoming& m : receives) peers.insert(m.peer);
  return {.what = prefix(exchange_name),
          .peers = (peers.size() > 1 ? "one of " : "") + Impl::ranks_text(peers),
          .operation = exchange_name.operation,
          .region = std::string(exchange_name.region),
          .log = exchange_name.log};
}

double NcclCommunicator::exchange(const InstanceRef& exec, const ExchangeName& exchange_name,
                                  std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  require_ready(exchange_name);
  if (exec.has_host_memory())
    return through_host([&] { return m_host->exchange(exec, exchange_name, sends, receives); });
  if (exec.stream() == nullptr) {
    begin(exec, exchange_name, sends, receives);
    finish();
    return 0;
  }
  if (sends.empty() && receives.empty()) return 0;
  m_line->launch(messages(exchange_name, sends, receives), static_cast<cudaStream_t>(exec.stream()), sends,
                 receives);
  m_line->await_launch();
  return 0;
}

double NcclCommunicator::begin(const InstanceRef& exec, const ExchangeName& exchange_name,
                               std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  require_ready(exchange_name);
  Begun begun{.operation = exchange_name.operation,
              .region = std::string(exchange_name.region),
              .on_host = exec.has_host_memory(),
              .stream = static_cast<cudaStream_t>(exec.stream())};
  double seconds = 0;
  if (begun.on_host) {
    seconds = through_host([&] { return m_host->begin(exec, exchange_name, sends, receives); });
  } else if (!sends.empty() || !receives.empty()) {
    Impl::NcclMessages list = messages(exchange_name, sends, receives);
    begun.end = list.end;
    if (begun.stream != nullptr) {
      Impl::CudaEvent work;
      work.record(begun.stream);
      work.hold(m_line->stream());
    } else {
      require_device_memory(exchange_name, sends, receives);
      exec.fence();
    }
    m_line->launch(std::move(list), m_line->stream(), sends, receives);
  }
  m_begun = std::make_unique<Begun>(std::move(begun));
  return seconds;
}

bool NcclCommunicator::poll() {
  if (!m_begun) return true;
  if (m_begun->on_host) return through_host([&] { return m_host->poll(); });
  if (m_begun->stream == nullptr) return m_line->is_launched() && (!m_begun->end || m_begun->end->is_over());
  // Whether messages have arrived differs from rank to rank, and so would the order in which they launch what follows.
  m_line->await_launch();
  return true;
}

void NcclCommunicator::finish() {
  if (!m_begun) return;
  if (m_begun->on_host) {
    through_host([&] { m_host->finish(); });
  } else {
    m_line->await_launch();
    if (m_begun->end && m_begun->stream != nullptr)
      m_begun->end->hold(m_begun->stream);
    else if (m_begun->end)
      m_world->settle(m_begun->end.get());
  }
  m_begun.reset();
}

void NcclCommunicator::settle() const { m_world->settle(); }

std::unique_ptr<Communicator> NcclCommunicator::subset(std::span<const int> members, const std::string& name) {
  const int place = checked_member(members, name);
  const std::string what = named(name);
  auto host = through_host([&] { return m_host->subset(members, name); });
  // The groups of one call are apart, so the first of their ranks tells them from each other. One rank alone needs nothing.
  const int color = members.size() > 1 ? std::ranges::min(members) : NCCL_SPLIT_NOCOLOR;
  auto line =
      size() > 1 ? m_line->split(color, place, what) : std::make_unique<Impl::NcclLine>(m_world, nullptr, what);
  return std::unique_ptr<Communicator>(new NcclCommunicator(std::move(host), m_world, std::move(line)));
}

}  // namespace kformer
