// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

namespace kformer::drivers {

/// From now on SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU are requests to stop, and the time limit counts. First
/// in `main`, so that no signal ends a program that could have saved. Only a second SIGINT ends it at once: a batch system sends
/// several signals and then waits.
void listen_to_signals();

/// Requests to end a run: a signal, or the wall-clock limit. The run finishes its current case or step and writes its
/// results.
class StopRequest {
 public:
  /// `walltime_s` = 0 means no limit; it counts from `listen_to_signals`, which this calls if nobody did.
  explicit StopRequest(double walltime_s);
  /// Why the run should stop, if it should.
  std::optional<std::string> reason() const;

 private:
  double m_walltime_s;
};

}  // namespace kformer::drivers
