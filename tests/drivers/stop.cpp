// SPDX-License-Identifier: MIT
#include "app/stop.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <string>

namespace kformer::drivers {
namespace {

/// The status of a process that listens and then gets signals; it exits with 0 if the reason to stop is the first one.
int status_after(std::initializer_list<int> signals) {
  const pid_t child = ::fork();
  BOOST_REQUIRE(child >= 0);
  if (child == 0) {
    listen_to_signals();
    for (const int signal : signals) std::raise(signal);
    const StopRequest stop(0);  // must not forget what came before it
    ::_exit(stop.reason() == std::string("signal: ") + strsignal(*signals.begin()) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

bool exits_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

}  // namespace

BOOST_AUTO_TEST_SUITE(stop)

BOOST_AUTO_TEST_CASE(signals_are_requests_from_the_beginning) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    BOOST_TEST(exits_well(status_after({signal})));
}

// Slurm sends SIGUSR1 and later SIGTERM; the second must not kill a run that is saving.
BOOST_AUTO_TEST_CASE(only_a_second_interrupt_ends_a_program_at_once) {
  BOOST_TEST(exits_well(status_after({SIGUSR1, SIGTERM, SIGTERM, SIGUSR1, SIGHUP, SIGINT})));
  const int status = status_after({SIGINT, SIGTERM, SIGINT});
  BOOST_TEST((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::drivers
