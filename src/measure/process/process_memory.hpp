// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kformer::measure {

/// What the system counts of this process's memory.
struct ProcessMemory {
  std::uint64_t resident = 0;  ///< bytes in memory now; 0 if the system does not say it
  std::uint64_t peak = 0;      ///< most of them so far, or since `reset_process_peak`
};

/// The memory of this process, VmRSS and VmHWM of /proc/self/status.
ProcessMemory process_memory();

/// Lets the peak start again from what is resident now, where the system can do that.
void reset_process_peak();

}  // namespace kformer::measure
