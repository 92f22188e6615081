// SPDX-License-Identifier: MIT
#include "app/stop.hpp"

#include <chrono>
#include <csignal>
#include <cstring>

namespace kformer::drivers {

namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t received = 0, interrupts = 0;
std::optional<Clock::time_point> begin;

void remember(int signal) {
  if (signal == SIGINT) {
    if (interrupts != 0) {
      std::signal(SIGINT, SIG_DFL);
      std::raise(SIGINT);
    }
    interrupts = 1;
  }
  if (received == 0) received = signal;
}

}  // namespace

void listen_to_signals() {
  if (begin) return;
  begin = Clock::now();
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) std::signal(signal, remember);
  // nohup ignores it.
  if (std::signal(SIGHUP, remember) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

StopRequest::StopRequest(double walltime_s) : m_walltime_s(walltime_s) { listen_to_signals(); }

std::optional<std::string> StopRequest::reason() const {
  if (received != 0) return std::string("signal: ") + strsignal(received);
  const double elapsed = std::chrono::duration<double>(Clock::now() - *begin).count();
  if (m_walltime_s > 0 && elapsed >= m_walltime_s) return "the time limit [run] walltime_s is reached";
  return {};
}

}  // namespace kformer::drivers
