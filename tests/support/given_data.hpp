// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

/// \file
/// Published data, which is not part of the project. A suite that needs it is a ctest of its own.

namespace kformer::Testing {

/// The folder that KFORMER_DATA names, or an empty path.
inline std::filesystem::path given_data() {
  const char* data = std::getenv("KFORMER_DATA");
  return data != nullptr ? data : "";
}

/// The precondition that it has this folder.
struct Given {
  const char* folder;

  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    if (std::filesystem::exists(given_data() / folder)) return true;
    std::printf("skipped: KFORMER_DATA names no folder with %s\n", folder);
    return false;
  }
};

}  // namespace kformer::Testing
