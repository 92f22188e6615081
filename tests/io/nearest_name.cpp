// SPDX-License-Identifier: MIT
#include "io/nearest_name.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

namespace kformer::Testing {

using Names = std::vector<std::string>;

BOOST_AUTO_TEST_SUITE(nearest_name)

BOOST_AUTO_TEST_CASE(names_that_few_edits_make_are_near) {
  const Names names{"seq_len", "q_len", "batch"};
  BOOST_TEST(Impl::nearest_names("seqlen", names) == Names{"seq_len"});
  BOOST_TEST(Impl::nearest_names("SEQ_LEN", names) == (Names{"seq_len", "q_len"}));
  BOOST_TEST(Impl::nearest_names("btach", names) == Names{"batch"});
  BOOST_TEST(Impl::nearest_names("window", names).empty());
  // A third of a word, rounded up: two edits of five letters, and of four one.
  BOOST_TEST(Impl::nearest_names("abcxx", {"abcde"}) == Names{"abcde"});
  BOOST_TEST(Impl::nearest_names("abxx", {"abcd"}).empty());
  BOOST_TEST(Impl::nearest_names("abcx", {"abcd"}) == Names{"abcd"});
}

BOOST_AUTO_TEST_CASE(the_nearest_comes_first_and_not_all_are_named) {
  const Names names{"adam_beta3", "adam_beta1", "adam_beta2", "adam_betas"};
  BOOST_TEST(Impl::nearest_names("adam_beta2", names, 2) == (Names{"adam_beta2", "adam_beta1"}));
  BOOST_TEST(Impl::nearest_names("adam_beta2", names, 9).size() == 4u);
}

BOOST_AUTO_TEST_CASE(parts_of_a_name_and_names_of_others_are_near) {
  BOOST_TEST(Impl::nearest_names("max_tokens", {"max_position_embeddings", "max_new_tokens"}) ==
             Names{"max_new_tokens"});
  BOOST_TEST(Impl::nearest_names("tokens", {"max_new_tokens"}).empty());
  BOOST_TEST(Impl::nearest_names("tokens_max", {"max_new_and_old_tokens"}).empty());
  BOOST_TEST(Impl::nearest_names("Float32", {"f32", "f64"}, 1) == Names{"f32"});
  BOOST_TEST((Impl::is_same_name("half", "f16") && Impl::is_same_name("BF16", "bf16")));
  BOOST_TEST(!Impl::is_same_name("half", "f32"));
}

// The table of edits would be as large as a hostile input makes it.
BOOST_AUTO_TEST_CASE(names_of_any_length_cost_no_time) {
  const std::string longest(256, 'a'), longer(257, 'a');
  BOOST_TEST(Impl::nearest_names(longest, {longest, longer}) == Names{longest});
  BOOST_TEST(Impl::nearest_names(longer, {longest, longer}).empty());
}

BOOST_AUTO_TEST_CASE(a_sentence_names_near_ones_or_some) {
  BOOST_TEST(Impl::suggest_names("bacth", {"batch", "bath"}) == "; did you mean 'bath' or 'batch'?");
  BOOST_TEST(Impl::suggest_names("window", {}) == "; there are none");
  BOOST_TEST(Impl::suggest_names("window", {"a", "b"}) == "; known: a, b");
  Names many;
  for (char name = 'a'; name <= 'l'; ++name) many.emplace_back(1, name);
  BOOST_TEST(Impl::suggest_names("window", many) == "; known: a, b, c, d, e, f, g, h, i, j, k, l");
  many.emplace_back("m");
  BOOST_TEST(Impl::suggest_names("window", many) == "; known: a, b, c, d, e, f, g, h, i, j, k, l, ...");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
