// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <fstream>
#include <string>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace kformer::Testing {

/// Bytes of this kind that are in the memory of this process, or 0 if the system does not say it. The system counts a few
/// hundred pages late.
inline std::size_t resident_bytes(const char* kind) {
  std::ifstream status("/proc/self/status");
  std::size_t kibibytes = 0;
  for (std::string word; status >> word;)
    if (word == kind) status >> kibibytes;
  return kibibytes << 10;
}

/// Those of mapped files.
inline std::size_t resident_bytes_of_files() { return resident_bytes("RssFile:"); }

/// Those that the process wrote itself, without what it has freed: a copy in that would not be seen.
inline std::size_t resident_bytes_of_copies() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  return resident_bytes("RssAnon:");
}

/// Lets a suite run where the system counts them.
inline boost::test_tools::assertion_result counts_resident_files(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result counted(resident_bytes_of_files() > 0);
  counted.message() << "skipped: no RssFile in /proc/self/status";
  return counted;
}

}  // namespace kformer::Testing
