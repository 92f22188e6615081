// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace kformer::drivers {

/// Requests to end a run: SIGINT, SIGTERM, SIGHUP, SIGUSR1, or the wall-clock limit. The first signal lets the run
/// finish its current case and write its results; a second one ends it at once.
class StopRequest {
 public:
  /// Installs the signal handlers. `walltime_s` = 0 means no limit.
  explicit StopRequest(double walltime_s);
  /// Why the run should stop, if it should.
  std::optional<std::string> reason() const;

 private:
  std::chrono::steady_clock::time_point m_begin = std::chrono::steady_clock::now();
  double m_walltime_s;
};

}  // namespace kformer::drivers
