// SPDX-License-Identifier: MIT
#include "train/training_loop.hpp"

#include <chrono>
#include <numeric>
#include <string>
#include <utility>

#include "drivers/training_loop_case.hpp"

namespace kformer::Testing {

BOOST_FIXTURE_TEST_SUITE(training_loop, LoopCase)

BOOST_AUTO_TEST_CASE(steps_alone) {
  const TrainingEnd end = run();
  BOOST_TEST(learner.log == "0 1 2 3 4 5");
  BOOST_TEST(end.computed.tokens == 6 * 2 * seq_len);
  BOOST_TEST(!end.stopped);
  BOOST_TEST(end.checkpoints == 0);
  BOOST_TEST(numbers("steps/step") == (Doubles{0, 1, 2, 3, 4, 5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(memory_that_a_process_gave_back_is_in_its_peak_alone) {
  constexpr std::size_t size = std::size_t(64) << 20;
  BOOST_TEST(std::vector<char>(size, 'x').back() == 'x');
  run();
  const Doubles resident = numbers("memory/timeline/resident_bytes"),
                peak = numbers("memory/timeline/resident_peak_bytes");
  BOOST_TEST_REQUIRE(resident.size() == 3u);  // begin, first step, end
  for (std::size_t i = 0; i < 3; ++i)
    BOOST_TEST((resident[i] > 0 && peak[i] > resident[i] + static_cast<double>(size) / 2));
}

BOOST_AUTO_TEST_CASE(evaluations_texts_and_checkpoints_come_in_this_order_and_at_the_end) {
  evaluate_every(2);
  write_every(3);
  save_every(4);
  run();
  BOOST_TEST(learner.log == "0 1 e2 2 t3 3 e4 c4 4 5 e6 t6 c6 f");
  BOOST_TEST(numbers("evaluations/step") == (Doubles{2, 4, 6}), boost::test_tools::per_element());
  BOOST_TEST(numbers("evaluations/loss") == (Doubles{9, 8, 7}), boost::test_tools::per_element());
  BOOST_TEST(numbers("samples/step") == (Doubles{3, 6}), boost::test_tools::per_element());
  BOOST_TEST(numbers("checkpoints/step") == (Doubles{4, 6}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(zero_steps_between_them_means_only_at_the_end) {
  evaluate_every(0);
  write_every(0);
  save_every(0);
  run();
  BOOST_TEST(learner.log == "0 1 2 3 4 5 e6 t6 c6 f");
}

BOOST_AUTO_TEST_CASE(a_checkpoint_knows_the_past) {
  evaluate_every(2);
  save_every(4);
  run();
  BOOST_TEST_REQUIRE(learner.saved.size() == 2u);
  const CheckpointRecord record = checkpoint_record(learner.saved[0].first, learner.saved[0].second, "record");
  BOOST_TEST(record.state.steps == 4);
  BOOST_TEST(record.history.steps.size() == 4u);
  BOOST_TEST(record.history.evaluations.size() == 2u);
}

BOOST_AUTO_TEST_CASE(the_time_that_checkpoints_take_is_counted) {
  save_every(3);
  const TrainingEnd end = run();
  const double least = std::chrono::duration<double>(time_to_save).count();
  BOOST_TEST(end.checkpoints == 2);
  BOOST_TEST(end.checkpoint_wait >= least);
  BOOST_TEST(end.last_checkpoint_wait >= least);
  const Doubles waited = numbers("checkpoints/waited");
  BOOST_TEST_REQUIRE(waited.size() == 2u);
  BOOST_TEST(waited[0] == end.checkpoint_wait);
  BOOST_TEST(waited[1] >= least);
  BOOST_TEST(waited[1] <= end.last_checkpoint_wait);
}

BOOST_AUTO_TEST_CASE(losses_of_parts_are_weighted_with_their_targets) {
  evaluate_every(0);
  data.validation = std::make_unique<Numbers>(3);
  learner.by_name = true;
  run();
  BOOST_TEST(learner.log == "0 1 2 3 4 5 e6 e6");
  // 1, 2 and 3 targets with the losses 0, 1 and 2.
  BOOST_TEST(numbers("evaluations/loss")[0] == 8.0 / 6);
}

BOOST_AUTO_TEST_CASE(an_evaluation_may_take_the_first_sequences_only) {
  evaluate_every(0);
  data.validation = std::make_unique<Numbers>(3);
  learner.by_name = true;
  // More than there are are all.
  for (const auto& [wanted, loss] : {std::pair{2, 2.0 / 3}, {5, 8.0 / 6}}) {
    learner.steps = 0;
    deck.evaluation->sequences = wanted;
    run();
    BOOST_TEST(numbers("evaluations/loss")[0] == loss);
  }
}

BOOST_AUTO_TEST_CASE(the_last_micro_batch_of_a_step_ends_with_the_step) {
  deck.batch.sequences = 3;
  run();
  std::vector<std::int32_t> expected(18);
  std::iota(expected.begin(), expected.end(), 0);
  BOOST_TEST(learner.read == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_early_stop_ends_the_training_as_its_last_step_would) {
  evaluate_every(1);
  write_every(0);
  save_every(3);
  deck.early_stop = {.patience = 2};
  learner.losses = {3, 2, 2.5, 2.4, 1, 1};
  const TrainingEnd end = run();
  BOOST_TEST(learner.log == "0 e1 1 e2 2 e3 c3 3 e4 t4 c4 f");
  BOOST_TEST(!end.stopped);
}

BOOST_AUTO_TEST_CASE(a_run_that_stopped_early_goes_on_no_further) {
  evaluate_every(1);
  save_every(3);
  deck.early_stop = {.patience = 2};
  learner.steps = 4;
  TrainingHistory history = past(4);
  for (const auto& [step, loss] : {std::pair{1, 3.0}, {2, 2.0}, {3, 2.5}, {4, 2.4}})
    history.evaluations.push_back({step, loss, 0});
  run(std::move(history));
  BOOST_TEST(learner.log == "f");
}

BOOST_AUTO_TEST_CASE(a_step_that_was_skipped_is_a_step) {
  evaluate_every(2);
  learner.skips = 1;
  const TrainingEnd end = run();
  BOOST_TEST(learner.log == "0 1 e2 2 3 e4 4 5 e6");
  BOOST_TEST(end.steps == 6);
  BOOST_TEST(end.skipped == 1);
  BOOST_TEST(numbers("steps/skipped") == (Doubles{0, 1, 0, 0, 0, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_training_that_diverged_has_failed) {
  BOOST_TEST(run().failure == "");
  learner = {};
  learner.diverges = 4;
  const TrainingEnd end = run();
  BOOST_TEST(end.skipped == 2);
  BOOST_TEST(
      end.failure.starts_with("the training diverged: the loss of the last step is not finite, and the weights "
                              "are those after step 4 of 6; "));
  stop_after = 5;
  learner = {};
  learner.diverges = 4;
  BOOST_TEST(run().failure == "");
}

// As if a sampler had other bits than the trainer in steps 2 and 4; after an update there is nothing to compare.
class UnequalSampler final : public TrainingObjective {
 public:
  ObjectiveStep step(Learner& learner, const SequenceBatch& batch) override {
    const Doubles unequal{0, 5, std::numeric_limits<double>::quiet_NaN(), 2, 0, 0};
    ObjectiveStep result{learner.step(batch.sequences), {}};
    result.figures["unequal_logp"] = unequal.at(static_cast<std::size_t>(result.step));
    return result;
  }
  Judgement judge(Learner&, const SequenceBatch&) override { return {}; }
};

BOOST_AUTO_TEST_CASE(a_sampler_with_other_bits_is_a_warning_where_they_are_promised) {
  for (const bool promised : {true, false}) {
    learner = {};
    deck.precision.batch_invariant = promised;
    own_objective = std::make_unique<UnequalSampler>();
    BOOST_TEST(run().unequal == (promised ? 2 : 0));
    const std::string warning = "warning: step 2: 5 log-probabilities of the sampler are not, to the bit, ";
    BOOST_TEST((said.find(warning) != said.npos) == promised);
    BOOST_TEST(said.find("warning") == said.rfind("warning"));
  }
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_saves_and_does_nothing_else) {
  evaluate_every(0);
  write_every(0);
  save_every(4);
  stop_after = 3;
  const TrainingEnd end = run();
  BOOST_TEST(learner.log == "0 1 2 c3 f");
  BOOST_TEST((end.stopped == std::optional<std::string>("time")));
  BOOST_TEST(end.computed.tokens == 3 * 2 * seq_len);
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_before_the_first_step_saves) {
  save_every(4);
  stop_after = 0;
  BOOST_TEST((run().stopped == std::optional<std::string>("time")));
  BOOST_TEST(learner.log == "c0 f");
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_after_a_checkpoint_needs_no_other) {
  save_every(4);
  stop_after = 4;
  run();
  BOOST_TEST(learner.log == "0 1 2 3 c4 f");
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_after_the_last_step_comes_too_late) {
  save_every(4);
  stop_after = 6;
  BOOST_TEST(!run().stopped);
  BOOST_TEST(learner.log == "0 1 2 3 c4 4 5 c6 f");
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_cuts_an_evaluation_off_and_the_next_run_repeats_it) {
  evaluate_every(2);
  write_every(2);
  save_every(4);
  data.validation = std::make_unique<Numbers>(6);
  for (const auto& [end, before] : {std::pair{2, "0 1 "}, {6, "0 1 e2 e2 e2 t2 2 3 e4 e4 e4 t4 c4 4 5 "}}) {
    learner = {};
    learner.by_name = true;
    stop_at = fmt::format("e{} e{}", end, end);
    BOOST_TEST((run().stopped == std::optional<std::string>("time")));
    BOOST_TEST(learner.log == fmt::format("{}e{} e{} c{} f", before, end, end, end));
    const auto& [text, columns] = learner.saved.back();
    TrainingHistory history = checkpoint_record(text, columns, "record").history;
    BOOST_TEST(history.evaluations.size() == static_cast<std::size_t>(end / 2 - 1));
    learner.log.clear();
    stop_at.clear();
    const bool stopped = run(std::move(history)).stopped.has_value();
    BOOST_TEST(!stopped);
    BOOST_TEST(learner.log ==
               (end == 2 ? "e2 e2 e2 t2 2 3 e4 e4 e4 t4 c4 4 5 e6 e6 e6 t6 c6 f" : "e6 e6 e6 t6 c6 f"));
  }
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_cuts_a_text_off_and_the_next_run_repeats_it) {
  evaluate_every(2);
  write_every(2);
  save_every(4);
  stop_at = "e2";
  run();
  BOOST_TEST(learner.log == "0 1 e2 c2 f");
  const auto& [text, columns] = learner.saved.back();
  learner.log.clear();
  stop_at.clear();
  run(checkpoint_record(text, columns, "record").history);
  BOOST_TEST(learner.log == "t2 2 3 e4 t4 c4 4 5 e6 t6 c6 f");
}

BOOST_AUTO_TEST_CASE(a_resumed_run_reads_what_comes_next) {
  evaluate_every(2);
  save_every(4);
  deck.data.shuffle = true;
  deck.run.seed = 7;
  deck.profile.kernels = true;
  learner.steps = 3;
  run(past(3));
  BOOST_TEST(learner.log == "3 e4 c4 4 5 e6 c6 f");
  const SequenceOrder order(20, true, 7);
  std::vector<std::int32_t> expected;
  for (std::int64_t i = 6; i < 12; ++i) expected.push_back(static_cast<std::int32_t>(order.at(i)));
  BOOST_TEST(learner.read == expected, boost::test_tools::per_element());
  BOOST_TEST(
      checkpoint_record(learner.saved[1].first, learner.saved[1].second, "record").history.steps.size() == 6u);
  // The second of this run.
  BOOST_TEST(profiled == std::vector<std::int64_t>{4}, boost::test_tools::per_element());
}

// The fences of a profile take time that no other step needs.
BOOST_AUTO_TEST_CASE(the_profiled_step_is_in_no_rate) {
  deck.profile.kernels = true;
  const TrainingEnd end = run();
  BOOST_TEST(end.steps == 6);
  BOOST_TEST(end.computed.tokens == 5 * 2 * seq_len);
  const Doubles times = numbers("steps/time");
  double seconds = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    BOOST_TEST(std::isnan(times[i]) == (i == 1), "step " << i);
    if (i != 1) seconds += times[i];
  }
  BOOST_TEST(end.seconds == seconds);
}

BOOST_AUTO_TEST_CASE(a_single_step_is_profiled) {
  deck.profile.kernels = true;
  learner.steps = 5;
  const TrainingEnd end = run(past(5));
  BOOST_TEST(profiled == std::vector<std::int64_t>{5}, boost::test_tools::per_element());
  BOOST_TEST((end.computed.tokens == 0 && end.seconds == 0));
}

BOOST_AUTO_TEST_CASE(a_run_that_is_resumed_at_its_end_repeats_nothing) {
  evaluate_every(2);
  write_every(3);
  save_every(4);
  learner.steps = 6;
  TrainingHistory history = past(6);
  history.evaluations.push_back({6, 1, 0});
  history.samples.push_back({6, "a", "x"});
  run(std::move(history));
  BOOST_TEST(learner.log == "f");
}

BOOST_AUTO_TEST_CASE(a_low_temperature_writes_what_is_likeliest) {
  deck.batch.seq_len = 40;
  BOOST_TEST(texts_of_a_step({.prompts = {"a"}, .max_new_tokens = 20, .temperature = 0.01}).front() ==
             std::string(20, 'x'));
}

// Each text, step and token has draws of its own.
BOOST_AUTO_TEST_CASE(a_high_temperature_writes_anything) {
  deck.batch.seq_len = 40;
  learner.logits = only("xy", -1e9);
  const SamplesTable table{.prompts = {"a", "a"}, .max_new_tokens = 30, .temperature = 1};
  const auto texts = texts_of_a_step(table);
  BOOST_TEST_REQUIRE(texts.size() == 2u);
  for (const std::string& text : texts) {
    BOOST_TEST(text.size() == 30u);
    BOOST_TEST((std::ranges::count(text, 'x') > 5 && std::ranges::count(text, 'y') > 5), text);
  }
  BOOST_TEST(texts[0] != texts[1]);
  --steps;
  BOOST_TEST((texts_of_a_step(table) != texts));
}

BOOST_AUTO_TEST_CASE(a_logit_that_is_no_number_is_never_drawn) {
  deck.batch.seq_len = 40;
  learner.logits = only("xy", std::numeric_limits<double>::quiet_NaN());
  const auto text = texts_of_a_step({.prompts = {"a"}, .max_new_tokens = 30, .temperature = 1}).front();
  BOOST_TEST((std::ranges::count(text, 'x') > 5 && std::ranges::count(text, 'y') > 5), text);
  learner.logits.assign(258, std::numeric_limits<double>::quiet_NaN());
  BOOST_TEST(texts_of_a_step({.prompts = {"a"}, .max_new_tokens = 30, .temperature = 1}).front() == "");
}

BOOST_AUTO_TEST_CASE(a_text_ends_by_its_token_or_where_the_sequence_is_full) {
  BOOST_TEST(texts_of_a_step({.prompts = {"a"}, .max_new_tokens = 30}).front() == "xx");
  learner.logits[257] = 2;
  learner.log.clear();
  BOOST_TEST(texts_of_a_step({.prompts = {"a"}, .max_new_tokens = 30}).front() == "");
  BOOST_TEST(std::ranges::count(learner.log, 't') == 1, learner.log);
  learner.logits = only("\xE2");
  BOOST_TEST(texts_of_a_step({.prompts = {"a"}, .max_new_tokens = 1}).front() == "\xEF\xBF\xBD");
  BOOST_CHECK_EXCEPTION(write_every(0, {.prompts = {"abc"}}), NotSupported, [](const NotSupported& error) {
    return std::string(error.what()) ==
           "samples.prompts[0] has 4 tokens, but batch.seq_len = 4 leaves no room to continue it";
  });
}

BOOST_AUTO_TEST_CASE(a_checkpoint_that_cannot_be_written_ends_the_run) {
  save_every(4);
  learner.disk_is_full = true;
  BOOST_CHECK_THROW(run(), FileError);
  BOOST_TEST(learner.log == "0 1 2 3");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
