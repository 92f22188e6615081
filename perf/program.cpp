// SPDX-License-Identifier: MIT
#include "program.hpp"

#include <iostream>
#include <string_view>

#include "benchmarks.hpp"
#include "kformer/core/device.hpp"
#include "server.hpp"

namespace kformer::perf {

int run_program(const std::string& name, int argc, char** argv, std::vector<Case> (*cases)(),
                std::vector<Case> (*smoke_cases)()) {
  if (const std::string why = missing_device(); !why.empty()) {
    std::cerr << "error: " << why << '\n';
    return 1;
  }
  const Kokkos::ScopeGuard kokkos(argc, argv);  // takes its own arguments away
  std::vector<char*> arguments(argv, argv + argc);
  const auto take = [&](std::string_view option) {
    return std::erase_if(arguments, [&](const char* argument) { return argument == option; }) > 0;
  };
  const bool smoke = take("--smoke");
  const auto chosen = smoke ? smoke_cases() : cases();
  // Tiny cases show that all works, and no times: a few sets of operands take turns.
  const std::size_t rotated = smoke ? std::size_t(8) << 20 : rotated_bytes();
  if (!take("--serve")) return run_benchmarks(name, chosen, rotated, arguments);
  serve(name, chosen, rotated, std::cin, std::cout);
  return 0;
}

}  // namespace kformer::perf
