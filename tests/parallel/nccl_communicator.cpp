// SPDX-License-Identifier: MIT
#include "kformer/parallel/nccl_communicator.hpp"

#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <thread>

#include "parallel/ranks.hpp"
#include "support/errors.hpp"
#include "support/fake_nccl/streams.hpp"

// On the fake of NCCL, whose streams go on only while somebody looks.
namespace kformer::Testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::duration<double> timeout(0.5);

// An instance that works on a stream.
class StreamInstance {
 public:
  StreamInstance() { cudaStreamCreateWithFlags(&m_stream, cudaStreamNonBlocking); }
  ~StreamInstance() { cudaStreamDestroy(m_stream); }
  StreamInstance(const StreamInstance&) = delete;
  StreamInstance& operator=(const StreamInstance&) = delete;

  cudaStream_t cuda_stream() const { return m_stream; }
  void fence(const char*) const { cudaStreamSynchronize(m_stream); }

 private:
  cudaStream_t m_stream = nullptr;
};

// Ranks, and numbers of this one: what it sends, and what it has received.
struct Pair {
  explicit Pair(std::chrono::duration<double> seconds = std::chrono::minutes(1))
      : host(std::make_shared<MpiCommunicator>(MPI_COMM_WORLD)),
        ranks(std::make_shared<MpiCommunicator>(MPI_COMM_WORLD), NcclOptions{seconds}) {}

  int peer() const { return 1 - ranks.rank(); }
  // Rank 0 and 1 work, others look on.
  bool works() const { return ranks.size() > 1 && ranks.rank() < 2; }
  // One tells the other to go on.
  void tell() {
    const Outgoing message{peer(), &token, 1};
    host->exchange(InstanceRef(Exec()).with_host_memory(), {"tell"}, {&message, 1}, {});
  }
  void listen() {
    const Incoming message{peer(), &token, 1};
    host->exchange(InstanceRef(Exec()).with_host_memory(), {"listen"}, {}, {&message, 1});
  }
  void send(double number, ExchangeName name = {"send", "x"}) {
    numbers[0] = number;
    const Outgoing message{peer(), &numbers[0], sizeof number};
    ranks.exchange(InstanceRef(exec), name, {&message, 1}, {});
  }
  void receive(ExchangeName name = {"receive", "x"}) { receive(ranks, exec, name); }
  void receive(Communicator& from, const StreamInstance& on, ExchangeName name = {"receive", "x"}) {
    const Incoming message{peer(), &numbers[1], sizeof(double)};
    from.exchange(InstanceRef(on), name, {}, {&message, 1});
  }
  // All ranks once more, and two of them have met.
  std::unique_ptr<Communicator> twin(const std::string& name) {
    std::vector<int> members(static_cast<std::size_t>(ranks.size()));
    std::iota(members.begin(), members.end(), 0);
    auto all = ranks.subset(members, name);
    if (!works()) return all;
    const Outgoing message{peer(), &numbers[0], sizeof(double)};
    if (ranks.rank() == 0)
      receive(*all, exec);
    else
      all->exchange(InstanceRef(exec), {"send"}, {&message, 1}, {});
    exec.fence("twin");
    return all;
  }
  // Once it is told to.
  void answer(double number) {
    listen();
    send(number);
    exec.fence("all");
  }
  // Their first messages.
  void meet() {
    if (ranks.rank() == 0)
      receive();
    else
      send(-1);
    exec.fence("meet");
  }

  StreamInstance exec;
  std::shared_ptr<Communicator> host;
  NcclCommunicator ranks;
  std::array<double, 2> numbers{};
  std::byte token{};
};

std::string sentence(const Communicator& ranks, const std::string& operation, const std::string& rest) {
  return "kformer::NcclCommunicator: " + operation + ": rank " + std::to_string(ranks.rank()) +
         " of 'world' (" + std::to_string(ranks.size()) + " ranks) " + rest;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nccl_communicator)

BOOST_AUTO_TEST_CASE(messages_are_work_of_the_instance) {
  Pair p;
  if (!p.works()) return;
  p.meet();
  if (p.ranks.rank() == 0) {
    p.receive();
    BOOST_TEST(p.numbers[1] == -1);  // the call does not wait
    p.tell();
    p.exec.fence("all");
    BOOST_TEST(p.numbers[1] == 7);
  } else {
    p.answer(7);
  }
}

BOOST_AUTO_TEST_CASE(an_instance_waits_for_what_was_begun_and_the_host_does_not) {
  Pair p;
  if (!p.works()) return;
  p.meet();
  if (p.ranks.rank() == 0) {
    const Incoming message{1, &p.numbers[1], sizeof(double)};
    p.ranks.begin(InstanceRef(p.exec), {"shift", "x"}, {}, {&message, 1});
    BOOST_TEST(p.ranks.poll());  // whenever it is asked, so that all ranks go on alike
    p.ranks.finish();
    BOOST_TEST(p.numbers[1] == -1);
    p.tell();
    p.exec.fence("all");
    BOOST_TEST(p.numbers[1] == 8);
  } else {
    p.answer(8);
  }
}

BOOST_AUTO_TEST_CASE(what_is_begun_follows_the_work_before) {
  Pair p;
  if (!p.works()) return;
  p.meet();
  if (p.ranks.rank() == 0) {
    p.receive();
    p.ranks.settle();
    BOOST_TEST(p.numbers[1] == 5);
  } else {
    std::atomic<bool> go = false;
    enqueue(p.exec.cuda_stream(), [&] {
      if (go) p.numbers[0] = 5;
      return go.load();
    });
    const Outgoing message{0, &p.numbers[0], sizeof(double)};
    p.ranks.begin(InstanceRef(p.exec), {"shift", "x"}, {&message, 1}, {});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    BOOST_TEST(p.ranks.poll());
    advance_streams();
    go = true;
    p.ranks.finish();
    p.exec.fence("all");
  }
}

BOOST_AUTO_TEST_CASE(seconds_are_booked_when_messages_have_arrived) {
  Pair p;
  if (!p.works()) return;
  p.meet();
  if (p.ranks.rank() == 0) {
    const auto log = std::make_shared<CommunicationLog>();
    p.receive({"receive", "x", log});
    advance_streams();  // up to the message
    BOOST_TEST(log->counts().empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    p.tell();
    p.ranks.settle();
    BOOST_REQUIRE(log->counts().size() == 1u);
    const CommunicationCount count = log->counts()[0];
    BOOST_TEST((count.operation == "receive" && count.region == "x" && count.calls == 0u));
    BOOST_TEST(count.seconds >= 0.1);
    BOOST_TEST(count.seconds < 30);
  } else {
    p.listen();
    p.send(9);
    p.ranks.settle();
  }
}

BOOST_AUTO_TEST_CASE(a_stream_that_waits_in_vain_goes_on_and_the_next_call_says_why) {
  Pair p(timeout);
  if (p.works()) {
    p.meet();
    if (p.ranks.rank() == 0) {
      const auto start = Clock::now();
      p.receive();
      p.exec.fence("all");
      const std::chrono::duration<double> waited = Clock::now() - start;
      BOOST_TEST(waited.count() >= timeout.count());
      BOOST_TEST(waited.count() < 20 * timeout.count());
      const std::string expected =
          sentence(p.ranks, "receive of x",
                   "waited 0.5 s in vain for rank 1; look there for an earlier error, or raise the time-out");
      check_error<CommunicationError>([&] { p.ranks.settle(); }, expected);
      check_error<CommunicationError>(
          [&] { p.send(1); },
          sentence(p.ranks, "send of x", "cannot go on after an earlier error: " + expected));
      p.tell();
    } else {
      p.listen();
    }
  }
}

// The end of one of them waits for the device.
BOOST_AUTO_TEST_CASE(messages_of_several_communicators_end_together) {
  Pair p(timeout);
  const auto twin = p.twin("twin");
  const StreamInstance other;
  if (!p.works()) return;
  p.meet();
  if (p.ranks.rank() == 0) {
    p.receive(*twin, other);
    p.receive();
    p.exec.fence("all");
    other.fence("all");
    BOOST_CHECK_THROW(p.ranks.settle(), CommunicationError);
    p.tell();
  } else {
    p.listen();
  }
}

// The host waits for the stream, and only then for a lock.
BOOST_AUTO_TEST_CASE(a_stream_that_is_full_ends_in_time) {
  for (const std::size_t most : {1, 2, 3}) {
    Pair p(timeout);
    if (!p.works()) continue;
    p.meet();
    if (p.ranks.rank() == 0) {
      most_work = most;
      BOOST_CHECK_THROW(
          {
            p.receive();
            p.receive();
            p.ranks.settle();
          },
          CommunicationError);
      most_work = std::numeric_limits<std::size_t>::max();
      p.exec.fence("all");
      p.tell();
    } else {
      p.listen();
    }
  }
}

BOOST_AUTO_TEST_CASE(who_unwinds_ends_what_is_under_way) {
  const auto host = world();
  const auto ledger = Ledger::create();
  struct Stop {};
  const auto run = [] {
    Pair p;
    const auto twin = p.twin("twin");
    if (p.works()) p.meet();
    if (p.works() && p.ranks.rank() == 0) p.receive();
    throw Stop();
  };
  BOOST_CHECK_THROW(run(), Stop);
  Collectives<Exec>(host, {}, *ledger).barrier(Exec());
}

BOOST_AUTO_TEST_CASE(a_subset_waits_for_what_is_under_way) {
  Pair p;
  const auto start = Clock::now();
  if (p.works()) {
    p.meet();
    if (p.ranks.rank() == 0) {
      p.receive();
    } else {
      enqueue(p.exec.cuda_stream(), [&] { return Clock::now() - start > std::chrono::milliseconds(100); });
      p.send(6);
    }
  }
  const auto twin = p.twin("twin");
  if (p.works() && p.ranks.rank() == 0) BOOST_TEST(p.numbers[1] == 6);
}

BOOST_AUTO_TEST_CASE(communicators_launch_messages_in_the_order_of_calls) {
  Pair p;
  const auto members = std::to_array<int>({0, 1});
  const int self = p.ranks.rank();
  const auto line = p.ranks.subset(p.works() ? std::span(members) : std::span(&self, 1), "line");
  if (!p.works()) return;
  // The first messages of both, of which one has begun.
  const Outgoing out{p.peer(), &p.numbers[0], sizeof(double)};
  const Incoming in{p.peer(), &p.numbers[1], sizeof(double)};
  p.numbers[0] = 10 + self;
  line->begin(InstanceRef(p.exec), {"shift"}, {&out, 1}, {&in, 1});
  p.meet();
  line->finish();
  p.exec.fence("all");
  if (self == 1) BOOST_TEST(p.numbers[1] == 10);
}

BOOST_AUTO_TEST_CASE(a_message_of_no_bytes_is_not_sent) {
  Pair p;
  if (!p.works()) return;
  if (p.ranks.rank() == 0) {
    const Outgoing nothing{1, &p.numbers[0], 0};
    p.ranks.exchange(InstanceRef(p.exec), {"send"}, {&nothing, 1}, {});
    p.exec.fence("all");
    p.tell();
  } else {
    p.listen();
  }
}

BOOST_AUTO_TEST_CASE(work_before_a_message_is_no_wait_for_ranks) {
  Pair slow, p(timeout);
  if (!p.works()) return;
  p.meet();
  slow.meet();
  if (p.ranks.rank() == 0) {
    // Of ranks that are patient, on the stream of the others.
    const Incoming message{1, &p.numbers[1], sizeof(double)};
    slow.ranks.exchange(InstanceRef(p.exec), {"receive", "first"}, {}, {&message, 1});
    p.receive();
    std::this_thread::sleep_for(2 * timeout);
    p.tell();
    p.ranks.settle();
    BOOST_TEST(p.numbers[1] == 4);
  } else {
    p.listen();
    slow.send(3);
    p.send(4);
    slow.ranks.settle();
    p.ranks.settle();
  }
}

BOOST_AUTO_TEST_CASE(a_communicator_that_not_all_ranks_make_is_given_up) {
  const auto patient = world(), host = world();
  const auto mpi = std::make_shared<MpiCommunicator>(MPI_COMM_WORLD);
  if (mpi->size() > 1 && mpi->rank() != 1)
    check_error<CommunicationError>([&] { NcclCommunicator(mpi, {timeout}); },
                                    "kformer::NcclCommunicator 'world': not all ranks have made it after 0.5 "
                                    "s; every rank of the communicator "
                                    "must");
  const auto ledger = Ledger::create();
  Collectives<Exec>(patient, {}, *ledger).barrier(Exec());
}

BOOST_AUTO_TEST_CASE(ranks_of_a_subset_have_its_order) {
  Pair p;
  const int size = p.ranks.size(), rank = p.ranks.rank();
  std::vector<int> backwards;
  for (int r = size; r-- > 0;) backwards.push_back(r);
  const auto subset = p.ranks.subset(backwards, "backwards");
  BOOST_TEST(subset->rank() == size - 1 - rank);
  BOOST_TEST(subset->name() == "backwards");
  const auto ledger = Ledger::create();
  Collectives<Exec> line(std::shared_ptr<Communicator>(subset->subset(backwards, "forwards")), {}, *ledger);
  const Vector<std::int32_t> x = on_device<std::int32_t>({rank}), all("all", static_cast<std::size_t>(size));
  line.all_gather(Exec(), x, all);
  const auto gathered = on_host(all);
  for (int r = 0; r < size; ++r) BOOST_TEST(gathered[static_cast<std::size_t>(r)] == r);
}

BOOST_AUTO_TEST_CASE(what_nccl_says_is_passed_on) {
  Pair p;
  if (!p.works()) return;
  broken_nccl = ncclRemoteError;
  check_error<CommunicationError>(
      [&] { p.ranks.settle(); },
      "kformer::NcclCommunicator 'world': NCCL failed: remote process exited or there "
      "was a network error: the fake said so");
  broken_nccl = ncclSuccess;
}

BOOST_AUTO_TEST_CASE(a_failure_of_the_host_ends_messages_of_devices) {
  const auto patient = std::make_shared<MpiCommunicator>(MPI_COMM_WORLD);
  NcclCommunicator ranks(std::make_shared<MpiCommunicator>(MPI_COMM_WORLD, MpiOptions{.timeout = timeout}));
  const auto ledger = Ledger::create();
  if (ranks.size() > 1 && ranks.rank() == 0) {
    std::byte token{};
    double number = 0;
    const StreamInstance exec;
    const Incoming host_message{1, &token, 1}, message{1, &number, sizeof number};
    const std::string expected = "kformer::MpiCommunicator: listen: rank 0 of 'world' (" +
                                 std::to_string(ranks.size()) +
                                 " ranks) waited 0.5 s in vain for data from rank 1; look there for an earlier "
                                 "error, or raise the time-out";
    check_error<CommunicationError>(
        [&] { ranks.exchange(InstanceRef(exec).with_host_memory(), {"listen"}, {}, {&host_message, 1}); },
        expected);
    check_error<CommunicationError>(
        [&] { ranks.exchange(InstanceRef(exec), {"receive"}, {}, {&message, 1}); },
        sentence(ranks, "receive", "cannot go on after an earlier error: " + expected));
  }
  Collectives<Exec>(patient, {}, *ledger).barrier(Exec());
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  check_error<NotSupported>([] { NcclCommunicator(nullptr); },
                            "kformer::NcclCommunicator: there is no host communicator; give it one of MPI");
  Pair p;
  if (!p.works()) return;
  const Exec exec;
  memory_of_the_host = &p.numbers[0];
  const Outgoing message{p.peer(), &p.numbers[0], 8};
  check_error<NotSupported>(
      [&] { p.ranks.exchange(InstanceRef(exec), {"send"}, {&message, 1}, {}); },
      "kformer::NcclCommunicator: send: rank " + std::to_string(p.ranks.rank()) + " of 'world' (" +
          std::to_string(p.ranks.size()) +
          " ranks): a message is not in device memory, which NCCL moves; take the communicator of MPI");
  // The host communicator takes it.
  p.numbers[0] = p.ranks.rank();
  const Incoming answer{p.peer(), &p.numbers[1], 8};
  p.ranks.exchange(InstanceRef(exec).with_host_memory(), {"swap"}, {&message, 1}, {&answer, 1});
  BOOST_TEST(p.numbers[1] == p.peer());
  memory_of_the_host = nullptr;
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
