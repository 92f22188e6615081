// SPDX-License-Identifier: MIT
#include "generate/expectation.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

namespace {

using namespace kformer::drivers;

/// The beginning of text, and a token for each text, with ids from 10.
std::vector<TokenRecord> tokens(const std::vector<std::string>& texts) {
  std::vector<TokenRecord> all{{.id = 1}};
  for (const std::string& text : texts)
    all.push_back({.id = static_cast<std::int32_t>(9 + all.size()), .bytes = text});
  return all;
}

std::string message(const std::vector<TokenRecord>& got, const std::string& expected) {
  return difference_from(got, expected).value_or("equal");
}

std::string message(const std::vector<TokenRecord>& got, const std::vector<std::int64_t>& expected) {
  return difference_from(got, expected).value_or("equal");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(expectation)

BOOST_AUTO_TEST_CASE(white_space_at_the_ends_is_nothing) {
  BOOST_TEST(message(tokens({" Once", " upon", "\n"}), "Once upon") == "equal");
  BOOST_TEST(message(tokens({"Once", " upon"}), "\n Once upon \t\r\n") == "equal");
  BOOST_TEST(message(tokens({}), " \n") == "equal");
  BOOST_TEST(message(tokens({" ", "\n"}), "") == "equal");
}

BOOST_AUTO_TEST_CASE(white_space_inside_counts) {
  BOOST_TEST(message(tokens({"a", "  b"}), "a b") ==
             "token 3 of 3 (id 11, \"  b\") is the first that differs: after 2 bytes of text, expected \"b\", "
             "got \" b\"");
}

BOOST_AUTO_TEST_CASE(the_first_token_that_differs_is_named) {
  BOOST_TEST(message(tokens({" Once", " upon", " a", " tree"}), "Once upon a time") ==
             "token 5 of 5 (id 13, \" tree\") is the first that differs: after 13 bytes of text, expected "
             "\"ime\", got \"ree\"");
  BOOST_TEST(message(tokens({"x"}), "y") ==
             "token 2 of 2 (id 10, \"x\") is the first that differs: after 0 bytes of text, expected \"y\", "
             "got \"x\"");
}

BOOST_AUTO_TEST_CASE(tokens_without_text_are_passed_over) {
  auto got = tokens({"a", "", "c"});
  BOOST_TEST(
      message(got, "ab") ==
      "token 4 of 4 (id 12, \"c\") is the first that differs: after 1 bytes of text, expected \"b\", got "
      "\"c\"");
}

BOOST_AUTO_TEST_CASE(a_text_that_ends_early_or_late_differs) {
  BOOST_TEST(message(tokens({"Once"}), "Once upon") ==
             "the text ends after token 2 of 2, but \" upon\" should follow");
  BOOST_TEST(message(tokens({}), "Once") == "the text ends after token 1 of 1, but \"Once\" should follow");
  BOOST_TEST(message(tokens({"Once", " upon"}), "Once") ==
             "token 3 of 3 (id 11, \" upon\") is the first that differs: after 4 bytes of text, expected the "
             "end, got \" upon\"");
}

BOOST_AUTO_TEST_CASE(excerpts_are_short_and_on_one_line) {
  const std::string text = message(tokens({"a"}), "a\n\"b\"\x01" + std::string(100, 'z'));
  BOOST_TEST(text == "the text ends after token 2 of 2, but \"\\n\\\"b\\\"\\x01" + std::string(35, 'z') +
                         "\"... should follow");
}

BOOST_AUTO_TEST_CASE(characters_are_shown_whole) {
  // The same first byte: the second byte, a separate token, differs.
  BOOST_TEST(message(tokens({"na", "\xc3", "\xa4h"}), "na\u00f6h") ==
             "token 4 of 4 (id 12, \"\\xa4h\") is the first that differs: after 3 bytes of text, expected "
             "\"\u00f6h\", got \"\u00e4h\"");
  const std::string text = message(tokens({"a"}), "a" + std::string(39, 'z') + "\u00f6\u00f6");
  BOOST_TEST(text.ends_with("z\u00f6\"... should follow"), text);
}

BOOST_AUTO_TEST_CASE(ids_are_compared_one_by_one) {
  const auto got = tokens({"a", "b"});
  using Ids = std::vector<std::int64_t>;
  BOOST_TEST(message(got, Ids{1, 10, 11}) == "equal");
  BOOST_TEST(message(got, Ids{1, 12, 11}) ==
             "token 2 of 3 (id 10, \"a\") is the first that differs: expected id 12");
  BOOST_TEST(message(got, Ids{1, 10}) ==
             "token 3 of 3 (id 11, \"b\") is the first that differs: expected the end");
  BOOST_TEST(message(got, Ids{1, 10, 11, 7, 8}) ==
             "the sequence ends after 3 tokens, but id 7 should follow, for 5 tokens in total");
}

BOOST_AUTO_TEST_SUITE_END()
