// SPDX-License-Identifier: MIT
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <Kokkos_Core.hpp>
#include <boost/test/unit_test.hpp>

#include <iostream>
#include <string>

#include "kformer/core/device.hpp"
#include "support/acceptance.hpp"
#include "support/exit_code.hpp"

namespace {

// scripts/quickstart.d/list_skipped.py collects these lines.
void print_kernel_runs() {
  std::string ran, refused;
  for (const auto& [kernel, times] : kformer::Testing::kernel_runs())
    if (times > 0)
      ran += ' ' + kernel + ' ' + std::to_string(times) + 'x';
    else
      refused += ' ' + kernel;
  if (!ran.empty()) std::cout << "kernels that ran:" << ran << '\n';
  if (!refused.empty()) std::cout << "kernels that did not run:" << refused << '\n';
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
