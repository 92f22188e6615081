// SPDX-License-Identifier: MIT
#include "measure/process/core_wait.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <system_error>

namespace kformer::measure {

std::optional<double> core_wait(const std::filesystem::path& threads) {
  double ran = 0, waited = 0;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator(threads, none)) {
    std::ifstream file(thread.path() / "schedstat");
    double on_core = 0, ready = 0;
    if (!(file >> on_core >> ready)) continue;  // the thread has just ended
    ran += on_core;
    waited += ready;
  }
  // A system that does not count says 0.
  if (ran == 0) return {};
  return 1e-9 * waited;
}

double core_wait_share(std::optional<double> before, std::optional<double> after, double seconds) {
  if (!before || !after || !(seconds > 0)) return std::numeric_limits<double>::quiet_NaN();
  // What threads waited that have ended since is missing.
  return std::max(0.0, *after - *before) / seconds;
}

CoreWatch::CoreWatch() : m_before(core_wait()), m_begin(std::chrono::steady_clock::now()) {}

double CoreWatch::share() const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - m_begin;
  return core_wait_share(m_before, core_wait(), seconds.count());
}

}  // namespace kformer::measure
