// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "case.hpp"

namespace kformer::perf {

/// The main function of a program that times cases: `--smoke` takes the tiny ones, `--serve` answers requests
/// (server.hpp), and otherwise Google Benchmark runs them (benchmarks.hpp). Kokkos takes its own arguments.
int run_program(const std::string& name, int argc, char** argv, std::vector<Case> (*cases)(),
                std::vector<Case> (*smoke_cases)());

}  // namespace kformer::perf
