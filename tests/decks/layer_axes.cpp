// SPDX-License-Identifier: MIT
// The axes of [sweep]: their products, zips and exclusions.
#include <algorithm>
#include <string>
#include <vector>

#include "layer_decks.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

struct LayerAxisDecks : LayerDecks {
  std::vector<LayerCase> cases(const std::string& sweep) const {
    return expand(load(good + sweep).sweep, built);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(layer_axes, LayerAxisDecks)

BOOST_AUTO_TEST_CASE(axes_hold_different_values) {
  BOOST_TEST(contains(faults(good + "batch = []\n"),
                      "deck.toml:9:9: error: 'sweep.batch' must not be empty; leave the "
                      "key out for its default"));
  BOOST_TEST(
      contains(faults(good + "batch = [1, 2, 1]\n"), "9:16: error: 'sweep.batch[2]' repeats an earlier value"));
  BOOST_TEST(
      contains(faults(good + "impl = [\"flash\", \"flash\"]\n"), "'sweep.impl[1]' repeats an earlier value"));
  BOOST_TEST(contains(faults(good + "batch = [0]\n"),
                      "'sweep.batch[0]' must be an integer in [1, 16777216], got integer 0"));
  BOOST_TEST(
      contains(faults(good + "execution_space = [\"all\", \"serial\"]\n"),
               "'sweep.execution_space' combines \"all\" or \"default\" with other values; use it alone"));
  std::string many;
  for (int i = 1; i <= 400; ++i) many += std::to_string(i) + ",";
  BOOST_TEST(contains(faults(good + "batch = [" + many + "]\n", {"sweep.seq_len=[" + many + "]"}),
                      "[sweep] has 320000 cases, but the limit is 100000"));
}

BOOST_AUTO_TEST_CASE(a_product_has_every_combination_once) {
  const auto points =
      cases("impl = [\"standard\", \"flash\"]\nbatch = [1, 2, 4]\ndtype = [\"f32\", \"bf16\"]\n");
  BOOST_TEST(points.size() == 2u * 2 * 2 * 3 * 2);
  for (std::size_t i = 0; i < points.size(); ++i)
    BOOST_TEST((std::count(points.begin(), points.end(), points[i]) == 1));
  BOOST_TEST(
      (points[0] == LayerCase{"openmp", DType::f32, Direction::forward, 1, 16, AttentionAlgorithm::standard}));
  BOOST_TEST(
      (points[1] == LayerCase{"openmp", DType::f32, Direction::forward, 1, 16, AttentionAlgorithm::flash}));
  BOOST_TEST(
      (points[2] == LayerCase{"openmp", DType::f32, Direction::forward, 2, 16, AttentionAlgorithm::standard}));
  BOOST_TEST((points.back() ==
              LayerCase{"serial", DType::bf16, Direction::backward, 4, 16, AttentionAlgorithm::flash}));
}

BOOST_AUTO_TEST_CASE(a_zip_takes_the_nth_values_together) {
  const auto points =
      cases("mode = \"zip\"\ndirection = \"forward\"\nbatch = [8, 1]\nimpl = [\"flash\", \"standard\"]\n");
  const std::vector<LayerCase> expected{
      {"openmp", DType::f32, Direction::forward, 8, 16, AttentionAlgorithm::flash},
      {"openmp", DType::f32, Direction::forward, 1, 16, AttentionAlgorithm::standard},
      {"serial", DType::f32, Direction::forward, 8, 16, AttentionAlgorithm::flash},
      {"serial", DType::f32, Direction::forward, 1, 16, AttentionAlgorithm::standard}};
  BOOST_TEST((points == expected));
}

BOOST_AUTO_TEST_CASE(zipped_axes_agree_in_length) {
  BOOST_TEST(
      faults(
          good +
          "mode = \"zip\"\ndirection = \"forward\"\nbatch = [1, 2]\ndtype = [\"f32\", \"f16\", \"f64\"]\n") ==
      "deck.toml:11:9: error: with mode = \"zip\" every axis has one value or equally many, but 'dtype' has 3 "
      "and 'batch' has 2\n"
      "   11 | batch = [1, 2]\n"
      "      |         ^~~~~~");
  BOOST_TEST(
      contains(faults(good + "mode = \"zip\"\nbatch = [1, 2, 3]\n"),
               "deck.toml:10:9: error: with mode = \"zip\" every axis has one value or equally many, but "
               "'direction' has 2 by default and 'batch' has 3"));
}

BOOST_AUTO_TEST_CASE(exclusions_match_on_every_axis_they_name) {
  const std::string axes =
      "execution_space = \"serial\"\ndirection = \"forward\"\nbatch = [1, 2, 4]\ndtype = [\"f32\", \"f16\"]\n";
  BOOST_TEST(cases(axes).size() == 6u);
  BOOST_TEST(cases(axes + "[[sweep.exclude]]\nbatch = 2\n").size() == 4u);
  BOOST_TEST(cases(axes + "[[sweep.exclude]]\nbatch = 2\ndtype = \"f32\"\n").size() == 5u);
  BOOST_TEST(cases(axes + "[[sweep.exclude]]\nbatch = [2, 4]\ndtype = \"f32\"\n").size() == 4u);
  BOOST_TEST(cases(axes + "[[sweep.exclude]]\nbatch = 2\n[[sweep.exclude]]\ndtype = \"f32\"\n").size() == 2u);
  const auto left = expand(load(good + axes + "[[sweep.exclude]]\nbatch = [2, 4]\n").sweep, built);
  BOOST_TEST(std::all_of(left.begin(), left.end(), [](const auto& point) { return point.batch == 1; }));
}

BOOST_AUTO_TEST_CASE(exclusions_name_the_spaces_behind_all) {
  const auto deck = load(good + "direction = \"forward\"\n[[sweep.exclude]]\nexecution_space = \"serial\"\n");
  BOOST_TEST(deck.record.warnings.empty());
  const auto points = expand(deck.sweep, built);
  BOOST_TEST_REQUIRE(points.size() == 1u);
  BOOST_TEST(points[0].execution_space == "openmp");
}

BOOST_AUTO_TEST_CASE(idle_exclusions_are_warned_about) {
  const auto deck =
      load(good + "[[sweep.exclude]]\nbatch = 3\n[[sweep.exclude]]\nbatch = 1\ndirection = \"forward\"\n");
  BOOST_TEST_REQUIRE(deck.record.warnings.size() == 1u);
  BOOST_TEST(without_directory(deck.record.warnings[0]) ==
             "deck.toml:9:1: warning: 'sweep.exclude[0]' matches no case");
  BOOST_TEST(load(with_tensors + "[[sweep.exclude]]\nbatch = 3\n").record.warnings.empty());
}

BOOST_AUTO_TEST_CASE(exclusions_leave_something) {
  BOOST_TEST(
      contains(faults(good + "[[sweep.exclude]]\nseq_len = 16\n"), "error: every case of [sweep] is excluded"));
  BOOST_TEST(
      contains(faults(good + "[[sweep.exclude]]\n"), "deck.toml:9:1: error: 'sweep.exclude[0]' names no axis"));
  BOOST_TEST(contains(faults(good + "[[sweep.exclude]]\nmode = \"zip\"\n"),
                      "unknown key 'mode' in [sweep.exclude[0]]"));
  const auto deck = load(good + "[[sweep.exclude]]\nexecution_space = \"serial\"\n");
  BOOST_CHECK_EXCEPTION(expand(deck.sweep, {"serial"}), DeckError, [](const DeckError& error) {
    return std::string(error.what()) == "every case of [sweep] is excluded";
  });
}

BOOST_AUTO_TEST_CASE(execution_spaces_are_those_of_the_build) {
  const auto spaces = [&](const std::string& line, const std::vector<std::string>& has) {
    std::vector<std::string> names;
    for (const auto& point : expand(load(good + "direction = \"forward\"\n" + line).sweep, has))
      names.push_back(point.execution_space);
    return names;
  };
  using Names = std::vector<std::string>;
  BOOST_TEST((spaces("", {"cuda", "openmp"}) == Names{"cuda", "openmp"}));
  BOOST_TEST((spaces("execution_space = \"default\"\n", {"cuda", "openmp"}) == Names{"cuda"}));
  BOOST_TEST(
      (spaces("execution_space = [\"openmp\", \"cuda\"]\n", {"cuda", "openmp"}) == Names{"openmp", "cuda"}));
  BOOST_CHECK_EXCEPTION(spaces("execution_space = \"cuda\"\n", built), DeckError, [](const DeckError& error) {
    return std::string(error.what()) ==
           "'sweep.execution_space' asks for \"cuda\", but this build has: openmp, serial";
  });
}

BOOST_AUTO_TEST_SUITE_END()
