// SPDX-License-Identifier: MIT
#include <nccl.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "streams.hpp"

namespace {

constexpr int most_ranks = 8;
constexpr std::size_t ring_bytes = 1 << 16;

// Bytes on their way from one rank to another. Each is the place of a message, its length first.
struct Ring {
  std::atomic<std::uint64_t> written, read;
  std::byte bytes[ring_bytes];
};

// Of one rank, in a split.
struct Choice {
  std::atomic<std::uint32_t> round;
  int color, key;
};

// What ranks share. It is zero at first.
struct Shared {
  std::atomic<std::uint32_t> here[most_ranks];
  std::atomic<std::uint32_t> met[most_ranks][most_ranks];  // which rank has had messages for which
  Choice choices[2][most_ranks];                           // of this split and the last
  Ring rings[most_ranks][most_ranks];                      // from, to
};

struct Message {
  int peer;
  std::byte* data;
  std::size_t bytes, done = 0;  // with its length in front
  std::uint64_t length = 0;
  bool sends;
};

// What operations on streams see of a communicator, which may end before them.
struct Link {
  std::string name;
  int rank, size;
  Shared* shared = nullptr;
  bool complete = false;
  std::atomic<int> under_way = 0;  // groups of messages
  std::atomic<bool> aborted = false;
  std::atomic<ncclResult_t> error = ncclSuccess;

  Link(std::string shared_name, int own, int ranks) : name(std::move(shared_name)), rank(own), size(ranks) {
    const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return;
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED) shared = static_cast<Shared*>(memory);
  }
  ~Link() {
    if (shared) munmap(shared, sizeof(Shared));
    if (rank == 0 && !complete) shm_unlink(name.c_str());
  }

  // Then nobody opens it any more.
  bool all_here() {
    if (complete) return true;
    complete = std::all_of(shared->here, shared->here + size, [](const auto& h) { return h.load() != 0; });
    if (complete && rank == 0) shm_unlink(name.c_str());
    return complete;
  }
  Ring& ring(const Message& m) const {
    return m.sends ? shared->rings[rank][m.peer] : shared->rings[m.peer][rank];
  }

  // Returns whether all of a message has gone.
  bool advance(Message& m) {
    Ring& r = ring(m);
    const std::size_t header = sizeof m.length;
    while (m.done < header + m.bytes) {
      const std::uint64_t at = m.sends ? r.written.load() : r.read.load();
      if (m.sends ? at - r.read.load() == ring_bytes : at == r.written.load()) return false;
      const std::size_t left = header + m.bytes - m.done;
      const std::size_t room = m.sends ? ring_bytes - (at - r.read.load()) : r.written.load() - at;
      const std::size_t in_part = m.done < header ? header - m.done : left;
      const std::size_t n = std::min({room, in_part, ring_bytes - at % ring_bytes});
      std::byte* const ours =
          m.done < header ? reinterpret_cast<std::byte*>(&m.length) + m.done : m.data + (m.done - header);
      std::byte* const theirs = r.bytes + at % ring_bytes;
      std::memcpy(m.sends ? theirs : ours, m.sends ? ours : theirs, n);
      (m.sends ? r.written : r.read).store(at + n);
      m.done += n;
      if (!m.sends && m.done == header && m.length != m.bytes) {
        error = ncclInvalidArgument;  // the ranks do not agree
        aborted = true;
        return true;
      }
    }
    return true;
  }
};

// Messages to one peer follow each other.
bool advance_all(Link& link, std::vector<Message>& messages) {
  bool waits[2][most_ranks] = {};
  bool all = true;
  for (Message& m : messages) {
    if (link.aborted) return true;
    bool& before = waits[m.sends][m.peer];
    before = before || !link.advance(m);
    all = all && !before;
  }
  return all;
}

struct Group {
  bool is_open = false;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
  std::vector<ncclComm_t> given_up;
};
thread_local Group group;

using Family = std::set<ncclComm_t>;

}  // namespace

struct FakeComm {
  std::shared_ptr<Link> link;
  // A group is launched when the ranks have met for whom it has messages.
  std::vector<Message> launching;
  cudaStream_t launching_on = nullptr;
  std::uint32_t round = 0;
  ncclComm_t* part = nullptr;                                               // of a split in progress
  std::shared_ptr<Family> family = std::make_shared<Family>(Family{this});  // made of one by splits

  ~FakeComm() { family->erase(this); }

  bool is_in_progress() const { return !launching.empty() || part; }
  bool has_met(int peer) const { return link->shared->met[peer][link->rank] != 0; }

  ncclResult_t state() {
    if (const ncclResult_t broken = kformer::Testing::broken_nccl; broken != ncclSuccess) return broken;
    if (link->error != ncclSuccess) return link->error;
    if (!link->all_here()) return ncclInProgress;
    if (part && !end_split()) return ncclInProgress;
    if (launching.empty()) return ncclSuccess;
    if (!std::ranges::all_of(launching, [&](const Message& m) { return has_met(m.peer); }))
      return ncclInProgress;
    ++link->under_way;
    kformer::Testing::enqueue(launching_on, [to = link, messages = std::exchange(launching, {})]() mutable {
      if (!advance_all(*to, messages)) return false;
      --to->under_way;
      return true;
    });
    return ncclSuccess;
  }

  bool end_split() {
    const Choice* const choices = link->shared->choices[round % 2];
    const Choice& own = choices[link->rank];
    int rank = 0, size = 0;
    for (int r = 0; r < link->size; ++r) {
      if (choices[r].round != round) return false;
      if (choices[r].color != own.color) continue;
      ++size;
      rank += choices[r].key < own.key;
    }
    if (own.color != NCCL_SPLIT_NOCOLOR) {
      const std::string name = link->name + "-" + std::to_string(round) + "-" + std::to_string(own.color);
      ncclUniqueId id{};
      name.copy(id.internal, sizeof id.internal - 1);
      ncclCommInitRankConfig(part, size, id, rank, nullptr);
      family->insert(*part);
      (*part)->family = family;
    }
    part = nullptr;
    return true;
  }
};

namespace {

ncclResult_t end_given_up() {
  kformer::Testing::wait_for_device();
  for (const ncclComm_t comm : std::exchange(group.given_up, {})) delete comm;
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int count = 0;
  *id = {};
  ("/kformer-nccl-" + std::to_string(getpid()) + "-" + std::to_string(count++)).copy(id->internal, 127);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  if (ranks > most_ranks) return ncclInvalidArgument;
  auto link = std::make_shared<Link>(id.internal, rank, ranks);
  if (!link->shared) return ncclSystemError;
  link->shared->here[rank] = 1;
  *comm = new FakeComm{.link = std::move(link)};
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  if (comm->is_in_progress() || comm->link->under_way > 0) return ncclInvalidUsage;
  Choice& own = comm->link->shared->choices[++comm->round % 2][comm->link->rank];
  own.color = color;
  own.key = key;
  own.round = comm->round;
  comm->part = part;
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  comm->link->aborted = true;
  group.given_up.push_back(comm);
  return group.is_open ? ncclSuccess : end_given_up();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state();
  kformer::Testing::advance_streams();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:
      return "unhandled system error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "other";
  }
}

const char* ncclGetLastError(ncclComm_t) { return "the fake said so"; }

ncclResult_t ncclGroupStart() {
  group = {.is_open = true};
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  group.is_open = false;
  if (!group.given_up.empty()) return end_given_up();
  if (!group.comm) return ncclSuccess;
  if (std::ranges::any_of(*group.comm->family, &FakeComm::is_in_progress)) return ncclInvalidUsage;
  for (const Message& m : group.messages) group.comm->link->shared->met[group.comm->link->rank][m.peer] = 1;
  group.comm->launching = std::move(group.messages);
  group.comm->launching_on = group.stream;
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (peer < 0 || peer >= comm->link->size || peer == comm->link->rank) return ncclInvalidArgument;
  group.comm = comm;
  group.stream = stream;
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
  group.messages.push_back({.peer = peer, .data = bytes, .bytes = count, .length = count, .sends = true});
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (peer < 0 || peer >= comm->link->size || peer == comm->link->rank) return ncclInvalidArgument;
  group.comm = comm;
  group.stream = stream;
  group.messages.push_back(
      {.peer = peer, .data = static_cast<std::byte*>(data), .bytes = count, .sends = false});
  return ncclSuccess;
}
