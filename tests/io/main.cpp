// SPDX-License-Identifier: MIT
#define BOOST_TEST_MODULE kformer_io
#include <boost/test/unit_test.hpp>
