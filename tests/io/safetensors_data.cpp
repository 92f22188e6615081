// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "kformer/io/safetensors.hpp"
#include "support/given_data.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(safetensors_data, *boost::unit_test::precondition(Given{"layer_case"}) *
                                            boost::unit_test::precondition(Given{"stories260K"}))

BOOST_AUTO_TEST_CASE(published_files_are_read) {
  const std::filesystem::path folder = given_data();
  const auto inputs = SafetensorsFile::open(folder / "layer_case/stories260K_layer0.inputs.safetensors");
  const auto expected = SafetensorsFile::open(folder / "layer_case/stories260K_layer0.expected.safetensors");
  BOOST_TEST(inputs.names().size() == 11);
  BOOST_TEST(inputs.metadata().at("hidden_size") == "64");
  BOOST_TEST(inputs.at("hidden_states").shape == expected.at("output").shape, boost::test_tools::per_element());
  for (const auto& name : inputs.names()) {
    if (name != "hidden_states" && name != "grad_output") {
      BOOST_TEST(inputs.at(name).shape == expected.at("grad." + name).shape, boost::test_tools::per_element());
    }
    for (const double value : inputs.read_f64(name)) BOOST_REQUIRE(std::isfinite(value));
  }
  BOOST_TEST(expected.at("output").dtype == "F64");
  const auto model = SafetensorsFile::open(folder / "stories260K/model.safetensors");
  BOOST_TEST(model.read_f64("model.layers.0.mlp.down_proj.weight") == inputs.read_f64("mlp.down_proj.weight"),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
