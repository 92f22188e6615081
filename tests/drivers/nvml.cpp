// SPDX-License-Identifier: MIT
#include "measure/nvml.hpp"

#include <boost/test/unit_test.hpp>

namespace {

using kformer::measure::Nvml;

BOOST_AUTO_TEST_SUITE(nvml)

BOOST_AUTO_TEST_CASE(a_device_that_answers_has_a_figure) {
  for (int round = 0; round < 2; ++round) {
    const Nvml nvml(KFORMER_FAKE_NVML);
    BOOST_TEST(nvml.used_bytes("0000:65:00.0").value_or(0) == 43ull << 30);
    BOOST_TEST(nvml.used_bytes("0000:65:00.0").value_or(0) == 43ull << 30);
  }
}

BOOST_AUTO_TEST_CASE(otherwise_the_figure_is_absent) {
  const Nvml fake(KFORMER_FAKE_NVML);
  BOOST_TEST(!fake.used_bytes("0000:66:00.0").has_value());
  BOOST_TEST(!fake.used_bytes("0000:67:00.0").has_value());
  BOOST_TEST(!Nvml("libno-such-library.so.1").used_bytes("0000:65:00.0").has_value());
  BOOST_TEST(!Nvml("libm.so.6").used_bytes("0000:65:00.0").has_value());
  BOOST_TEST(!Nvml(KFORMER_FAKE_NVML_FAILING).used_bytes("0000:65:00.0").has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
