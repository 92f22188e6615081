// SPDX-License-Identifier: MIT
#include "io/json_depth.hpp"

#include <boost/test/unit_test.hpp>

#include <ctime>
#include <memory>

#include "io/config/config_json.hpp"

using kformer::Impl::is_shallow_json;

BOOST_AUTO_TEST_SUITE(json_depth)

BOOST_AUTO_TEST_CASE(brackets_of_texts_do_not_count) {
  BOOST_TEST(is_shallow_json(R"({"a": [1, {"b": "}]["}]})", 3));
  BOOST_TEST(!is_shallow_json(R"({"a": [1, {"b": "}]["}]})", 2));
  BOOST_TEST(is_shallow_json(R"(["\"[[[", "\\", "[["])", 1));
  BOOST_TEST(!is_shallow_json(R"(["\\", ["\""]])", 1));
  BOOST_TEST(is_shallow_json("[],[],{}", 1));
  BOOST_TEST(is_shallow_json("\"\\", 0));
}

// With a callback the parser took minutes for it.
BOOST_AUTO_TEST_CASE(many_objects_in_a_list_are_read_in_time) {
  using namespace kformer::Impl::schema;
  auto source = std::make_shared<SourceText>();
  source->text = "{\"x\": [{}";
  for (int i = 0; i < 300'000; ++i) source->text += ",{}";
  source->text += "]}";
  Diagnostics diagnostics;
  const std::clock_t begin = std::clock();
  BOOST_TEST(parse_config(source, diagnostics).has_value());
  BOOST_TEST(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 5);
}

BOOST_AUTO_TEST_SUITE_END()
