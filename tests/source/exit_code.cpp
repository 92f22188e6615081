// SPDX-License-Identifier: MIT
// Cases with each end there is. exit_code.py runs some of them at a time.
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include "support/exit_code.hpp"

#include <cstdio>

namespace {

struct Absent {
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const { return false; }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(ends)

BOOST_AUTO_TEST_CASE(passes) { BOOST_TEST(true); }

BOOST_AUTO_TEST_CASE(fails) {
  std::puts("skipped: no, it fails");
  BOOST_TEST(false);
}

BOOST_AUTO_TEST_CASE(lacks_data, *boost::unit_test::precondition(Absent())) { BOOST_TEST(true); }

BOOST_AUTO_TEST_SUITE_END()

int main(int argc, char* argv[]) { return kformer::Testing::run_boost_tests(argc, argv); }
