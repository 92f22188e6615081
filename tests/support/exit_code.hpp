// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/results_collector.hpp>
#include <boost/test/unit_test.hpp>

namespace kformer::Testing {

/// The exit code by which ctest knows a test that was skipped.
inline constexpr int skipped = 77;

/// Runs the tests that the arguments choose. `skipped` if preconditions left none of them: a suite that needs data
/// is a suite of its own, so that what needs none is never skipped with it.
inline int run_boost_tests(int argc, char* argv[]) {
  namespace tests = boost::unit_test;
  const int code = tests::unit_test_main([] { return true; }, argc, argv);
  if (code != 0) return code;
  const auto& all = tests::results_collector.results(tests::framework::master_test_suite().p_id);
  const bool none = all.p_test_cases_passed + all.p_test_cases_warned == 0;
  return none && all.p_test_cases_skipped > 0 ? skipped : code;
}

}  // namespace kformer::Testing
