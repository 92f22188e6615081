// SPDX-License-Identifier: MIT
// The loop of a training on pairs of completions.
#include <algorithm>
#include <cmath>
#include <set>

#include "drivers/training_loop_case.hpp"

namespace kformer::Testing {

BOOST_FIXTURE_TEST_SUITE(training_pairs, LoopCase)

// With adapters: the reference of each step, before it.
BOOST_AUTO_TEST_CASE(pairs_are_read_whole_and_in_another_order) {
  make_pairs();
  deck.adapter.emplace();
  deck.data.shuffle = true;
  steps = 5;
  run();
  BOOST_TEST(learner.log == "r0 0 r1 1 r2 2 r3 3 r4 4");
  std::set<std::int32_t> seen;
  BOOST_TEST_REQUIRE(learner.read.size() == 20u);
  for (std::size_t i = 0; i < 20; i += 2) {
    BOOST_TEST(learner.read[i] % 2 == 0);
    BOOST_TEST(learner.read[i + 1] == learner.read[i] + 1);
    seen.insert(learner.read[i]);
  }
  BOOST_TEST(seen.size() == 10u);
  BOOST_TEST(!std::ranges::is_sorted(learner.read));
}

// log p of chosen completions is the number of steps, of the reference 0; of rejected ones minus their number.
BOOST_AUTO_TEST_CASE(figures_of_pairs_are_columns_of_steps_and_evaluations_and_of_checkpoints) {
  make_pairs();
  deck.adapter.emplace();
  evaluate_every(2);
  save_every(4);
  data.validation = std::make_unique<Numbers>(6, 2);
  steps = 4;
  run();
  BOOST_TEST(learner.log == "r0 0 r1 1 r2 p2 r2 p2 r2 2 r3 3 r4 p4 r4 p4 c4 f");
  BOOST_TEST(numbers("steps/chosen_reward") == (Doubles{0, 0.5, 1, 1.5}), boost::test_tools::per_element());
  BOOST_TEST(numbers("steps/rejected_reward") == (Doubles{-1, -3, -5, -7}), boost::test_tools::per_element());
  BOOST_TEST(numbers("steps/margin") == (Doubles{1, 3.5, 6, 8.5}), boost::test_tools::per_element());
  BOOST_TEST(numbers("steps/accuracy") == (Doubles{1, 1, 1, 1}), boost::test_tools::per_element());
  // Of the rejected completions 1, 3 and 5: two pairs, and one.
  BOOST_TEST(numbers("evaluations/rejected_reward") == (Doubles{-1.5, -1.5}), boost::test_tools::per_element());
  BOOST_TEST(numbers("evaluations/chosen_reward") == (Doubles{1, 2}), boost::test_tools::per_element());
  BOOST_TEST_REQUIRE(learner.saved.size() == 1u);
  const TrainingHistory history =
      checkpoint_record(learner.saved[0].first, learner.saved[0].second, "record").history;
  BOOST_TEST(history.steps.at(2).figures.at("margin") == 6);
  BOOST_TEST(history.evaluations.at(1).figures.at("chosen_reward") == 2);
}

// Without adapters: once, with the first weights.
BOOST_AUTO_TEST_CASE(a_reference_of_first_weights_is_measured_once) {
  make_pairs();
  evaluate_every(0);
  data.validation = std::make_unique<Numbers>(6, 2, 30);
  deck.data.shuffle = true;
  steps = 3;
  run();
  BOOST_TEST(learner.log == "p0 p0 p0 p0 p0 p0 p0 0 1 2 p3 p3");
  // What log p gained since then.
  BOOST_TEST(numbers("steps/chosen_reward") == (Doubles{0, 0.5, 1}), boost::test_tools::per_element());
  BOOST_TEST(numbers("steps/rejected_reward") == (Doubles{0, 0, 0}), boost::test_tools::per_element());
  BOOST_TEST(numbers("evaluations/margin") == (Doubles{1.5}), boost::test_tools::per_element());
}

// Micro-batches of those that steps and evaluations read: here 10 of two pairs.
BOOST_AUTO_TEST_CASE(a_reference_is_measured_where_it_is_read) {
  make_pairs();
  data.train = std::make_unique<Numbers>(40, 2);
  evaluate_every(0);
  deck.evaluation->sequences = 6;
  data.validation = std::make_unique<Numbers>(20, 2);
  learner.steps = 7;
  steps = 9;
  run(past(7));
  BOOST_TEST(learner.log == "p7 p7 p7 p7 7 8 p9 p9");  // 2 of the data, 2 of the validation
  BOOST_TEST(learner.read == (std::vector<std::int32_t>{28, 29, 30, 31, 32, 33, 34, 35}),
             boost::test_tools::per_element());
  // The next epoch begins.
  learner = {};
  learner.steps = 9;
  steps = 12;
  run(past(9));
  BOOST_TEST(learner.log == "p9 p9 p9 p9 p9 9 10 11 p12 p12");
  learner = {};
  steps = 12;
  run();
  BOOST_TEST(learner.log.starts_with("p0 p0 p0 p0 p0 p0 p0 p0 p0 p0 p0 p0 0 1 "));
}

// Steps that read the end of an epoch and all of the next need each pair: the order of the two differs.
BOOST_AUTO_TEST_CASE(a_reference_of_a_whole_epoch_is_of_all_pairs) {
  make_pairs();
  deck.batch.micro_batch = 2;
  deck.data.shuffle = true;
  learner.steps = 3;
  steps = 10;
  run(past(3));
  BOOST_TEST(learner.log == "p3 p3 p3 p3 p3 p3 p3 p3 p3 p3 3 4 5 6 7 8 9");
}

BOOST_AUTO_TEST_CASE(pairs_of_a_model_that_diverged_have_no_loss) {
  for (const bool adapters : {true, false})
    for (const std::int64_t from : {2, 0}) {
      make_pairs();
      deck.adapter.reset();
      if (adapters) deck.adapter.emplace();
      evaluate_every(0);
      data.validation = std::make_unique<Numbers>(6, 2);
      steps = 4;
      learner = {};
      learner.diverges = from;
      const std::string failure = run().failure;
      BOOST_TEST(failure.starts_with("the training diverged: the loss of the last step is not finite, and "));
      const char* rest = from == 0 ? "no step changed the weights; look at the weights that it began with"
                                   : "the weights are those after step 2 of 4; ";
      BOOST_TEST(failure.find(rest) != failure.npos);
      const Doubles margins = numbers("steps/margin");
      for (std::int64_t i = 0; i < 4; ++i)
        BOOST_TEST(std::isnan(margins.at(static_cast<std::size_t>(i))) == (i >= from));
      BOOST_TEST(std::isnan(numbers("evaluations/loss").at(0)));
    }
}

// As long as the batch wants them; only completions have targets.
BOOST_AUTO_TEST_CASE(the_chosen_completion_comes_first) {
  put_contents(directory / "pairs.jsonl",
               "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"cd\"}\n"
               "{\"prompt\": \"x\", \"chosen\": \"yz\", \"rejected\": \"\"}\n");
  make_pairs();
  deck.batch.seq_len = 6;
  deck.data.truncation = Truncation::keep_start;
  LanguageModelTable model;
  model.vocab_size = 258;
  const auto tokenizer = open_tokenizer(TokenizerFormat::byte, {});
  const auto source = open_pairs(deck, model, *tokenizer, {directory / "pairs.jsonl"});
  BOOST_TEST(source->size() == 4);
  BOOST_TEST(source->together() == 2);
  const auto check = [&](std::int64_t index, const std::vector<std::int32_t>& ids,
                         const std::vector<std::int32_t>& targets) {
    TokenSequence sequence;
    source->read(index, sequence);
    BOOST_TEST(sequence.ids == ids, boost::test_tools::per_element());
    BOOST_TEST(sequence.targets == targets, boost::test_tools::per_element());
    BOOST_TEST(sequence.starts.empty());
  };
  check(0, {256, 'a', 'b', 257, 0, 0}, {-100, 'b', 257, -100, -100, -100});
  check(1, {256, 'a', 'c', 'd', 257, 0}, {-100, 'c', 'd', 257, -100, -100});
  check(2, {256, 'x', 'y', 'z', 257, 0}, {-100, 'y', 'z', 257, -100, -100});
  check(3, {256, 'x', 257, 0, 0, 0}, {-100, 257, -100, -100, -100, -100});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
