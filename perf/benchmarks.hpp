// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "case.hpp"

namespace kformer::perf {

/// Times the cases by Google Benchmark, whose command line follows the name of the program in `arguments`.
/// \returns what the program should
int run_benchmarks(const std::string& program, const std::vector<Case>& cases, std::vector<char*> arguments);

}  // namespace kformer::perf
