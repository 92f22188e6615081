// SPDX-License-Identifier: MIT
// Keys that other keys leave without effect: a deck that has them gets a warning.
#include <string>
#include <utility>
#include <vector>

#include "decks/train/train_deck.hpp"
#include "layer_decks.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

const std::string training = header_of("train") + three_layers +
                             "vocab_size = 300\n[data]\nformat = \"synthetic\"\n[batch]\nseq_len = 16\n"
                             "[schedule]\nsteps = 10\n[output]\nmodel = \"out\"\n";

struct TrainDecks : DeckCase<load_train_deck> {
  std::string warnings(std::vector<std::string> settings) const {
    const auto deck = load(training, std::move(settings));
    std::string text;
    for (const auto& line : deck.record.warnings) text += line;
    return text;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(idle_keys)

BOOST_FIXTURE_TEST_CASE(a_loss_scale_that_does_not_adapt, LayerDecks) {
  const std::string initial = "precision.initial_loss_scale=8";
  const std::vector<std::string> adapting{"precision.growth_factor=3", "precision.backoff_factor=0.25",
                                          "precision.growth_interval=7", "precision.least_loss_scale=2",
                                          "precision.greatest_loss_scale=65536"};
  const auto warnings = [&](const std::string& rule, const std::string& key) {
    return load(good, {"precision.loss_scaling=" + rule, key}).record.warnings;
  };
  for (const std::string& key : adapting) {
    const std::string name = "warning: '" + key.substr(0, key.find('=')) + "' has no effect with ";
    for (const char* rule : {"none", "static"}) {
      const auto said = warnings(rule, key);
      BOOST_TEST_REQUIRE(said.size() == 1u, key);
      BOOST_TEST(contains(said[0], name + "'precision.loss_scaling' = \"" + rule + '"'), said[0]);
    }
    BOOST_TEST(warnings("dynamic", key).empty(), key);
  }
  BOOST_TEST(warnings("none", initial).size() == 1u);
  BOOST_TEST(warnings("static", initial).empty());
}

BOOST_FIXTURE_TEST_CASE(the_loss_scale_of_a_training, TrainDecks) {
  const std::string interval = "precision.growth_interval=7";
  BOOST_TEST(
      contains(warnings({"precision.storage=bf16", interval}),
               "warning: 'precision.growth_interval' has no effect with 'precision.loss_scale' = \"none\""));
  BOOST_TEST(!contains(warnings({"precision.storage=f16", interval}), "growth_interval"));
}

BOOST_FIXTURE_TEST_CASE(ranks_that_are_alone_share_nothing, TrainDecks) {
  const auto warned = [&](std::vector<std::string> settings) {
    return contains(warnings(std::move(settings)),
                    "nothing with one rank: 'parallel.data' and 'parallel.context' are 1");
  };
  BOOST_TEST(warned({"parallel.zero=1"}));
  BOOST_TEST(warned({"parallel.overlap=true", "parallel.tensor=2"}));
  BOOST_TEST(!warned({"parallel.data=1"}));
  BOOST_TEST(!warned({"parallel.zero=1", "parallel.data=2", "batch.sequences=2"}));
  BOOST_TEST(!warned({"parallel.zero=1", "parallel.context=2"}));
}

BOOST_AUTO_TEST_SUITE_END()
