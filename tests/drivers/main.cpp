// SPDX-License-Identifier: MIT
#define BOOST_TEST_MODULE kformer_drivers
#include <boost/test/unit_test.hpp>
