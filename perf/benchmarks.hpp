// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "case.hpp"

namespace kformer::perf {

/// Times the cases by Google Benchmark, whose command line follows the name of the program in `arguments`.
/// \param rotated bytes of other operands between two uses of the same
/// \returns what the program should
int run_benchmarks(const std::string& program, const std::vector<Case>& cases, std::size_t rotated,
                   std::vector<char*> arguments);

}  // namespace kformer::perf
