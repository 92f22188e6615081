// SPDX-License-Identifier: MIT
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <boost/test/unit_test.hpp>

#include "support/exit_code.hpp"

int main(int argc, char* argv[]) { return kformer::Testing::run_boost_tests(argc, argv); }
