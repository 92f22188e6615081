// SPDX-License-Identifier: MIT
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <Kokkos_Core.hpp>
#include <boost/test/unit_test.hpp>

#include <iostream>

#include "kformer/core/device.hpp"

// Kokkos takes its own arguments; the rest belong to Boost.Test.
int main(int argc, char* argv[]) {
  constexpr int skipped = 77;
  if (const std::string why = kformer::missing_device(); !why.empty()) {
    std::cerr << "skipped: " << why << '\n';
    return skipped;
  }
  Kokkos::ScopeGuard kokkos(argc, argv);
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
