// SPDX-License-Identifier: MIT
// A layer of random weights against its description in NumPy, differentiated by complex steps: see
// scripts/make_layer_case.
#include "model/layer_case.hpp"
#include "support/source_files.hpp"

namespace kformer::Testing {
namespace {

LayerCase random_layer() { return LayerCase(test_data("layer_case/random_layer")); }

}  // namespace

BOOST_AUTO_TEST_SUITE(layer_case)

BOOST_AUTO_TEST_CASE(double_and_float) { check_double_and_float(random_layer()); }
BOOST_AUTO_TEST_CASE_TEMPLATE(sixteen_bits_by_the_tolerance_rule, T, Halves) {
  check_sixteen_bits<T>(random_layer());
}
BOOST_AUTO_TEST_CASE(references) { check_references(random_layer()); }

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
