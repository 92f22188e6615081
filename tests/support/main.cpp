// SPDX-License-Identifier: MIT
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <Kokkos_Core.hpp>
#include <boost/test/unit_test.hpp>

#include <iostream>

#include "kformer/core/device.hpp"
#include "support/acceptance.hpp"
#include "support/exit_code.hpp"

namespace {

void print_kernel_runs() {
  const auto& runs = kformer::Testing::kernel_runs();
  if (runs.empty()) return;
  std::cout << "kernels that ran:";
  for (const auto& [kernel, times] : runs) std::cout << ' ' << kernel << ' ' << times << 'x';
  std::cout << '\n';
}

}  // namespace

// Kokkos takes its own arguments; the rest belong to Boost.Test.
int main(int argc, char* argv[]) {
  using kformer::Testing::skipped;
  if (const std::string why = kformer::missing_device(); !why.empty()) {
    std::cerr << "skipped: " << why << '\n';
    return skipped;
  }
  Kokkos::ScopeGuard kokkos(argc, argv);
  const int code = kformer::Testing::run_boost_tests(argc, argv);
  print_kernel_runs();
  return code;
}
