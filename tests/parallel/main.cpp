// SPDX-License-Identifier: MIT
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <Kokkos_Core.hpp>
#include <boost/test/unit_test.hpp>

#include <iostream>

#include "kformer/core/device.hpp"
#include "parallel/ranks.hpp"
#include "support/exit_code.hpp"

// Every rank runs the same tests. One that fails ends the others, which would wait for it.
int main(int argc, char* argv[]) {
  const kformer::MpiSession mpi(argc, argv);
  if (const std::string why = kformer::missing_device(); !why.empty()) {
    std::cerr << "skipped: " << why << '\n';
    return kformer::Testing::skipped;
  }
#ifndef KFORMER_TEST_NCCL
  if (kformer::Testing::through_nccl()) {
    std::cerr << "skipped: this build has no NCCL\n";
    return kformer::Testing::skipped;
  }
#endif
  Kokkos::ScopeGuard kokkos(argc, argv);
  const int code = kformer::Testing::run_boost_tests(argc, argv);
  if (code != 0 && code != kformer::Testing::skipped) kformer::MpiSession::abort(code);
  return code;
}
