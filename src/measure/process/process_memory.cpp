// SPDX-License-Identifier: MIT
#include "measure/process/process_memory.hpp"

#include <fstream>
#include <sstream>
#include <string>

namespace kformer::measure {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t kibibytes = 0;
    if (!(words >> key >> kibibytes)) continue;
    if (key == "VmRSS:") memory.resident = kibibytes << 10;
    if (key == "VmHWM:") memory.peak = kibibytes << 10;
  }
  return memory;
}

void reset_process_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

}  // namespace kformer::measure
