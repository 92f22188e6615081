// SPDX-License-Identifier: MIT
// Loaded before the libraries of a program: a file whose path contains KFORMER_SLOW_FILE takes three seconds to reach the disk.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

extern "C" int fsync(int file) {
  char path[4096];
  const auto length = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof(path));
  const char* slow = std::getenv("KFORMER_SLOW_FILE");
  if (slow && length > 0 &&
      std::string_view(path, static_cast<std::size_t>(length)).find(slow) != std::string_view::npos)
    std::this_thread::sleep_for(std::chrono::seconds(3));
  return static_cast<int>(::syscall(SYS_fsync, file));
}
