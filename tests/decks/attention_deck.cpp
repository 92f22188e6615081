// SPDX-License-Identifier: MIT
#include "decks/attention_deck.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "deck_case.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

const std::string header = header_of("attention_compare");
const std::string sweep = "[sweep]\nnum_attention_heads = 4\nhead_dim = 16\nseq_len = 8\n";

struct AttentionDecks : DeckCase<load_attention_deck> {
  std::vector<AttentionCase> cases(const std::string& text) const {
    const auto deck = load(text);
    return expand(deck, filled_axes(deck), built);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(attention_deck, AttentionDecks)

BOOST_AUTO_TEST_CASE(a_minimal_deck_compares_both_ways_in_both_directions_on_every_space) {
  const auto all = cases(header + sweep);
  BOOST_TEST_REQUIRE(all.size() == 8u);
  BOOST_TEST(all.front().execution_space == "openmp");
  BOOST_TEST(all.front().num_key_value_heads == 4);
  BOOST_TEST(all.front().v_head_dim == 16);
  BOOST_TEST(all.front().q_len == 0);
  BOOST_TEST(query_length(all.front()) == 8);
  BOOST_TEST((all.front().dtype == DType::f32));
  BOOST_TEST(!all.front().causal);
  BOOST_TEST((all[0].impl == AttentionAlgorithm::standard && all[1].impl == AttentionAlgorithm::flash));
  BOOST_TEST((all[1].direction == Direction::forward && all[2].direction == Direction::backward));
}

BOOST_AUTO_TEST_CASE(a_swept_option_wins_over_the_table) {
  const std::string options =
      "[attention]\ncausal = true\nwindow = 5\nsoftcap = 2\nscale = 0.5\ncompute = \"full\"\n";
  const auto by_table = cases(header + options + sweep);
  BOOST_TEST((by_table.front().causal && by_table.front().window == 5));
  const auto swept = cases(header + options + sweep + "causal = [false, true]\nwindow = 0\n");
  BOOST_TEST(swept.size() == 16u);
  BOOST_TEST((!swept.front().causal && swept.front().window == 0));
  BOOST_TEST(load(header + options + sweep).attention.softcap == 2.0);
  BOOST_TEST((load(header + options + sweep).attention.compute == Precision::full));
}

BOOST_AUTO_TEST_CASE(exclusions_see_the_axes_that_the_deck_leaves_open) {
  const auto left = cases(header + "[attention]\ncausal = true\n" + sweep +
                          "[[sweep.exclude]]\ncausal = true\nimpl = \"standard\"\n");
  BOOST_TEST(left.size() == 4u);
  BOOST_TEST(std::ranges::all_of(left, [](const auto& c) { return c.impl == AttentionAlgorithm::flash; }));
  BOOST_TEST(load(header + sweep + "[[sweep.exclude]]\ncausal = true\n").record.warnings.size() == 1u);
}

BOOST_AUTO_TEST_CASE(tensors_leave_the_extents_open) {
  const auto deck = load(header + "[tensors]\ninput = \"case.safetensors\"\n");
  const auto axes = filled_axes(deck);
  BOOST_TEST(deck.tensors->input == directory / "case.safetensors");
  BOOST_TEST((axes.dtype.empty() && axes.direction.empty() && axes.seq_len.empty()));
  BOOST_TEST((axes.impl == std::vector{AttentionAlgorithm::flash}));
}

// Which cases it leaves out is known when the tensor file is.
BOOST_AUTO_TEST_CASE(an_exclusion_may_name_an_axis_that_the_tensors_fill) {
  const std::string tensors = header + "[tensors]\ninput = \"x\"\n";
  const auto deck = load(tensors + "[[sweep.exclude]]\ndirection = \"forward\"\n");
  BOOST_TEST(deck.record.warnings.empty());
  auto axes = filled_axes(deck);
  axes.dtype = {DType::f32};
  axes.direction = {Direction::forward, Direction::backward};
  const auto left = expand(deck, axes, {"serial"});
  BOOST_TEST((left.size() == 1u && left.front().direction == Direction::backward));
  BOOST_TEST(
      contains(faults(tensors + "[[sweep.exclude]]\nimpl = \"flash\"\n"), "every case of [sweep] is excluded"));
}

BOOST_AUTO_TEST_CASE(a_zip_whose_axes_come_from_the_tensors_must_go_together) {
  const auto deck = load(header + "[sweep]\nmode = \"zip\"\nwindow = [0, 2, 3]\n[tensors]\ninput = \"x\"\n");
  auto axes = filled_axes(deck);
  axes.direction = {Direction::forward, Direction::backward};
  BOOST_CHECK_EXCEPTION(expand(deck, axes, built), DeckError, [](const DeckError& error) {
    return contains(error.what(), "every axis of [sweep] has one value or equally many");
  });
}

BOOST_AUTO_TEST_CASE(contradictions_are_reported_with_their_place) {
  BOOST_TEST(contains(faults(header + sweep + "num_key_value_heads = 3\n"),
                      "deck.toml:7:23: error: 'sweep.num_key_value_heads' = 3 does not divide"));
  BOOST_TEST(contains(faults(header + sweep + "[tensors]\ninput = \"x\"\n"),
                      "deck.toml:6:11: error: 'sweep.seq_len' comes from the file of [tensors]; leave it out"));
  BOOST_TEST(
      contains(faults(header + "[sweep]\nhead_dim = 16\n"), "missing key 'num_attention_heads' in [sweep]"));
  BOOST_TEST(contains(faults(header + sweep + "mode = \"zip\"\nwindow = [1, 2, 3]\n"),
                      "'direction' has 2 by default"));
  BOOST_TEST(contains(faults(header + sweep + "[[sweep.exclude]]\nseq_len = 8\n"),
                      "every case of [sweep] is excluded"));
}

BOOST_AUTO_TEST_CASE(numbers_that_float_does_not_hold_are_refused) {
  BOOST_TEST(contains(faults(header + sweep, {"attention.scale=-1e300"}),
                      "'attention.scale' must be a number in [-1e+38, 1e+38], got float -1e+300"));
  BOOST_TEST(contains(faults(header + sweep, {"attention.softcap=1e300"}),
                      "'attention.softcap' must be a number in [0, 1e+38], got float 1e+300"));
  BOOST_TEST(contains(faults(header + sweep, {"attention.softcap=1e-300"}),
                      "'attention.softcap' = 1e-300 is neither 0 nor at least 1e-38"));
  load(header + sweep, {"attention.scale=-1e38", "attention.softcap=1e-38"});
}

BOOST_AUTO_TEST_CASE(the_resolved_deck_means_the_same) {
  const auto deck = load(header + sweep + "causal = [true, false]\n[limits]\ndevice_bytes = \"5 B\"\n",
                         {"attention.scale=0.25", "sweep.q_len=1"});
  const auto again = load(deck.record.resolved);
  BOOST_TEST((again.sweep == deck.sweep));
  BOOST_TEST((again.attention == deck.attention));
  BOOST_TEST((again.limits == deck.limits));
  BOOST_TEST((again.check == deck.check));
  BOOST_TEST(again.record.resolved == deck.record.resolved);
}

BOOST_AUTO_TEST_CASE(the_documentation_is_current) {
  check_documentation("attention_compare", "kformer-attention", describe_deck_markdown<AttentionCompareDeck>());
}

BOOST_AUTO_TEST_CASE(the_json_schema_knows_the_axes) {
  const auto schema = nlohmann::json::parse(describe_deck_json_schema<AttentionCompareDeck>());
  const auto& axes = schema.at("properties").at("sweep").at("properties");
  BOOST_TEST(axes.at("causal").at("oneOf").at(0).at("type") == "boolean");
  BOOST_TEST(axes.at("q_len").at("oneOf").at(0).at("minimum") == 0);
}

BOOST_AUTO_TEST_SUITE_END()
