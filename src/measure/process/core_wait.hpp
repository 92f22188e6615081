// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

namespace kformer::measure {

/// Seconds in which threads of this process were ready to run and waited for a core so far, the sum of all that live;
/// nothing where the system does not count them. Linux does, in nanoseconds: the second number of `schedstat`, after
/// those on a core.
/// \param threads a folder for each of them
std::optional<double> core_wait(const std::filesystem::path& threads = "/proc/self/task");

/// The part of `seconds` that passed between two of these in which threads waited; more than 1 where several did. NaN
/// where the system does not count it.
double core_wait_share(std::optional<double> before, std::optional<double> after, double seconds);

/// Watches how long threads wait for cores, from its making on.
class CoreWatch {
 public:
  CoreWatch();
  /// `core_wait_share` of the time since then.
  double share() const;

 private:
  std::optional<double> m_before;
  std::chrono::steady_clock::time_point m_begin;
};

}  // namespace kformer::measure
