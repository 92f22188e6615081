// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// What a rank sent, and how long it took. Free of Kokkos.

namespace kformer {

/// What one rank did in the calls of one operation in one region.
struct CommunicationCount {
  std::string operation;    ///< such as all_reduce
  std::string region;       ///< what the caller named it, such as gradients
  std::uint64_t calls = 0;  ///< of the operation
  std::uint64_t bytes = 0;  ///< that this rank sent to other ranks
  double seconds = 0;       ///< in exchanges, with the time in which it waited for other ranks
};

/// Counts of calls by operation and region. Any thread may read them at any time.
class CommunicationLog {
 public:
  /// Adds a call.
  void book(std::string_view operation, std::string_view region, std::uint64_t bytes, double seconds);
  /// Adds seconds of a call that are known later than it: those of messages that travel by themselves.
  void add_seconds(std::string_view operation, std::string_view region, double seconds);
  /// The counts so far, in the order of the first calls.
  std::vector<CommunicationCount> counts() const;

 private:
  CommunicationCount& count_of(std::string_view operation, std::string_view region);

  mutable std::mutex m_mutex;
  std::vector<CommunicationCount> m_counts;
};

}  // namespace kformer
