// SPDX-License-Identifier: MIT
// What a sanitizer must find. Only tests/fuzz/sanitizers.py runs it.
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <limits>
#include <memory>

namespace kformer::Testing {

namespace {

// A compiler knows neither.
volatile std::size_t five = 5;
volatile int largest = std::numeric_limits<int>::max();

}  // namespace

BOOST_AUTO_TEST_SUITE(sanitizers, *boost::unit_test::disabled())

BOOST_AUTO_TEST_CASE(passes) { BOOST_TEST(five == 5u); }
BOOST_AUTO_TEST_CASE(reads_past_the_end) {
  const auto numbers = std::make_unique<int[]>(5);
  BOOST_TEST_MESSAGE("went on with " << numbers[five]);
}
BOOST_AUTO_TEST_CASE(overflows) { BOOST_TEST_MESSAGE("went on with " << largest + static_cast<int>(five)); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
