// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>

namespace kformer::Testing {

/// Says why a part of a suite did not run: `quickstart test` lists such lines of ctest's report.
inline void say_skipped_in_part(const char* reason) { std::printf("skipped in part: %s\n", reason); }

}  // namespace kformer::Testing
