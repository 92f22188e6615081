// SPDX-License-Identifier: MIT
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "parallel/ranks.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double timeout = 0.5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string sentence(const std::string& operation, const Communicator& ranks, const std::string& rest) {
  return communicator_name() + ": " + operation + ": rank " + std::to_string(ranks.rank()) + " of 'world' (" +
         std::to_string(ranks.size()) + " ranks) " + rest;
}

// Ranks that had messages for all others, or for rank 1 alone, which did not come. NCCL does not say whom it waits for.
std::string waited(const Communicator& ranks, bool all) {
  if (!through_nccl()) return "waited 0.5 s in vain for data from rank 1";
  std::string others;
  for (int r = 0; r < ranks.size(); ++r)
    if (r != ranks.rank() && (all || r == 1)) others += (others.empty() ? "" : ", ") + std::to_string(r);
  return "waited 0.5 s in vain for " + std::string(all && ranks.size() > 2 ? "one of ranks " : "rank ") +
         others;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(time_outs)

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_call_ends_the_others_with_a_sentence) {
  const auto ledger = Ledger::create();
  const auto communicator = world(timeout);
  Collectives<Exec> ranks(communicator, {}, *ledger), patient(world(), {}, *ledger);
  if (communicator->size() > 1 && communicator->rank() != 1) {
    const Vector<float> x("x", 64);
    const auto start = Clock::now();
    const std::string expected =
        sentence("all_reduce of gradients", *communicator,
                 waited(*communicator, true) + "; look there for an earlier error, or raise the time-out");
    check_error<CommunicationError>([&] { ranks.all_reduce(Exec(), x, "gradients"); }, expected);
    BOOST_TEST(seconds_since(start) < 20 * timeout);
    check_error<CommunicationError>(
        [&] { ranks.broadcast(Exec(), x, 0); },
        communicator->size() == 2 && communicator->rank() == 1
            ? ""
            : sentence("broadcast", *communicator, "cannot go on after an earlier error: " + expected));
  }
  patient.barrier(Exec());
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_stopped_ends_the_others_with_a_sentence) {
  const auto ledger = Ledger::create();
  const auto communicator = world(timeout);
  Collectives<Exec> ranks(communicator, {}, *ledger), patient(world(), {}, *ledger);
  const int size = communicator->size();
  const Vector<std::int32_t> own = on_device<std::int32_t>({static_cast<std::int32_t>(getpid())});
  const Vector<std::int32_t> all("all", static_cast<std::size_t>(size));
  patient.all_gather(Exec(), own, all);
  const auto processes = on_host(all);
  if (size > 1 && communicator->rank() == 1) raise(SIGSTOP);
  if (size > 1 && communicator->rank() != 1) {
    const std::string expected =
        sentence("shift", *communicator,
                 waited(*communicator, false) + "; look there for an earlier error, or raise the time-out");
    const Vector<float> x("x", 3), y("y", 3);
    check_error<CommunicationError>([&] { ranks.shift(Exec(), x, 1, y, 1); }, expected);
    if (communicator->rank() == 0) kill(processes[1], SIGCONT);
  }
  patient.barrier(Exec());
}

BOOST_AUTO_TEST_CASE(the_caller_says_how_often_a_wait_goes_on) {
  const auto ledger = Ledger::create();
  Collectives<Exec> patient(world(), {}, *ledger);
  const int size = patient.communicator().size(), rank = patient.communicator().rank();
  if (size == 1 || through_nccl()) return;
  int asked = 0;
  double last = 0;
  const auto communicator = std::make_shared<MpiCommunicator>(
      MPI_COMM_WORLD, MpiOptions{.timeout = std::chrono::duration<double>(timeout),
                                 .wait_on = [&](std::chrono::duration<double> waited) {
                                   BOOST_TEST(waited.count() > last + 0.5 * timeout);
                                   last = waited.count();
                                   return ++asked < 3;
                                 }});
  Collectives<Exec> ranks(communicator, {}, *ledger);
  if (rank == 1) std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * timeout));
  ranks.barrier(Exec());
  if (rank != 1) {
    BOOST_TEST(asked >= 1);
    asked = 0;
    last = 0;
    const Vector<float> x("x", 64);
    check_error<CommunicationError>(
        [&] { ranks.all_reduce(Exec(), x, "gradients"); },
        sentence("all_reduce of gradients", *communicator,
                 "waited 1.5 s in vain for data from rank 1; look there for an earlier error, or raise the "
                 "time-out"));
    BOOST_TEST(asked == 3);
  }
  patient.barrier(Exec());
}

BOOST_AUTO_TEST_CASE(a_communicator_that_not_all_ranks_make_is_given_up) {
  const auto ledger = Ledger::create();
  Collectives<Exec> patient(world(), {}, *ledger);
  // That of NCCL begins with one of MPI.
  if (patient.communicator().size() > 1 && !through_nccl()) {
    if (patient.communicator().rank() != 0) {
      check_error<CommunicationError>(
          [] { world(timeout); },
          "kformer::MpiCommunicator 'world': not all ranks have made it after 0.5 s; every rank of the MPI "
          "communicator must");
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(2 * timeout));
      world();  // for MPI, which makes communicators in their order
    }
  }
  patient.barrier(Exec());
}

BOOST_AUTO_TEST_CASE(a_time_out_must_be_positive) {
  check_error<NotSupported>([] { world(0); },
                            communicator_name() + " 'world': the time-out must be positive, got 0 s");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
