// SPDX-License-Identifier: MIT
// Numbers on their way from a file.
#include "load/convert.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <vector>

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(convert)

// What is a little off the middle of two numbers of 16 bits is in the middle as float, for which the even one would win.
BOOST_AUTO_TEST_CASE(doubles_are_rounded_once) {
  const auto check = [&]<class T>(std::type_identity<T>, double gap) {
    constexpr double little = 0x1p-40, inf = std::numeric_limits<double>::infinity();
    const std::vector<double> from{1 + gap / 2 + little,
                                   1 + gap / 2,
                                   1 + gap / 2 - little,
                                   1 + 1.5 * gap - little,
                                   -1 - gap / 2 - little,
                                   1e300,
                                   -1e-300,
                                   -inf};
    const std::vector<double> expected{1 + gap, 1, 1, 1 + gap, -1 - gap, inf, 0, -inf};
    std::vector<T> to(from.size());
    kformer::Impl::convert(DType::f64, reinterpret_cast<const std::byte*>(from.data()), from.size(), to.data());
    for (std::size_t i = 0; i < from.size(); ++i)
      BOOST_TEST(static_cast<double>(static_cast<float>(to[i])) == expected[i], i);
  };
  check(std::type_identity<bf16>(), 0x1p-7);
  check(std::type_identity<f16>(), 0x1p-10);
  const double between_subnormals = 0x1p-25 + 0x1p-60, none = std::numeric_limits<double>::quiet_NaN();
  f16 number;
  kformer::Impl::convert(DType::f64, reinterpret_cast<const std::byte*>(&between_subnormals), 1, &number);
  BOOST_TEST(static_cast<float>(number) == 0x1p-24f);
  kformer::Impl::convert(DType::f64, reinterpret_cast<const std::byte*>(&none), 1, &number);
  BOOST_TEST(std::isnan(static_cast<float>(number)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
