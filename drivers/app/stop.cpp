// SPDX-License-Identifier: MIT
#include "app/stop.hpp"

#include <csignal>
#include <cstring>

namespace kformer::drivers {

namespace {
volatile std::sig_atomic_t received = 0;

void remember(int signal) {
  if (received != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  received = signal;
}
}  // namespace

StopRequest::StopRequest(double walltime_s) : m_walltime_s(walltime_s) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, remember);
  // nohup ignores it.
  if (std::signal(SIGHUP, remember) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

std::optional<std::string> StopRequest::reason() const {
  if (received != 0) return std::string("signal: ") + strsignal(received);
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - m_begin).count();
  if (m_walltime_s > 0 && elapsed >= m_walltime_s) return "the time limit [run] walltime_s is reached";
  return {};
}

}  // namespace kformer::drivers
