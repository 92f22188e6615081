// SPDX-License-Identifier: MIT
// A layer of a trained model against what an independent implementation with automatic differentiation made of
// it.
#include "model/layer_case.hpp"
#include "support/given_data.hpp"

namespace kformer::Testing {
namespace {

LayerCase trained_layer() { return LayerCase(given_data() / "layer_case/stories260K_layer0"); }

}  // namespace

BOOST_AUTO_TEST_SUITE(layer_case_data, *boost::unit_test::precondition(Given{"layer_case"}))

BOOST_AUTO_TEST_CASE(double_and_float) { check_double_and_float(trained_layer()); }
BOOST_AUTO_TEST_CASE_TEMPLATE(sixteen_bits_by_the_tolerance_rule, T, Halves) {
  check_sixteen_bits<T>(trained_layer());
}
BOOST_AUTO_TEST_CASE(references) { check_references(trained_layer()); }

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
