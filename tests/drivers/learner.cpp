// SPDX-License-Identifier: MIT
#include "learner/learner.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "measure/spaces.hpp"
#include "start_kokkos_once.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;

LearnerTask task(DType dtype, bool tied) {
  LearnerTask task;
  task.config = {.hidden_size = 40,
                 .intermediate_size = 61,
                 .num_attention_heads = 4,
                 .num_key_value_heads = 2,
                 .head_dim = 8,
                 .num_hidden_layers = 2,
                 .vocab_size = 75,
                 .tie_word_embeddings = tied};
  task.dtype = dtype;
  task.trainer.shape = {2, 9};
  task.trainer.layer.accumulate = false;
  task.trainer.schedule = {.kind = ScheduleKind::constant, .learning_rate = 1e-2, .steps = 2};
  return task;
}

std::vector<TokenSequence> sequences() {
  std::vector<TokenSequence> all(2, {.ids = {}, .targets = {}, .starts = {0}});
  for (std::int32_t i = 0; i < 18; ++i) {
    TokenSequence& sequence = all[static_cast<std::size_t>(i / 9)];
    sequence.ids.push_back(4 * i);
    sequence.targets.push_back(i % 4 == 0 ? -100 : 3 * i + 1);
  }
  return all;
}

struct Training {
  explicit Training(const LearnerTask& task)
      : ledger(Ledger::create(Ledger::Mode::allocate)),
        learner(make_learner(measure::built_spaces().front(), task, ledger)) {
    learner->initialise({.std = 0.2, .seed = 3});
    learner->prepare();
  }
  std::shared_ptr<Ledger> ledger;
  std::unique_ptr<Learner> learner;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(learner)

// And the model goes on as if nobody had asked.
BOOST_AUTO_TEST_CASE(a_reference_has_the_bits_of_the_first_weights) {
  Testing::start_kokkos_once();
  const auto tokens = sequences();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const bool tied : {false, true}) BOOST_TEST_CONTEXT(to_string(dtype) << ", tied " << tied) {
        LearnerTask with = task(dtype, tied);
        with.reference = true;
        const Training plain(task(dtype, tied)), training(with);
        Learner& learner = *training.learner;
        learner.keep_reference();
        const auto first = learner.log_probabilities(tokens).values;
        for (int step = 0; step < 2; ++step) {
          BOOST_TEST((learner.reference_log_probabilities(tokens).values == first));
          BOOST_TEST(learner.step(tokens).loss == plain.learner->step(tokens).loss);
        }
        BOOST_TEST((learner.reference_log_probabilities(tokens).values == first));
        const auto now = learner.log_probabilities(tokens).values;
        BOOST_TEST((now != first));
        BOOST_TEST((now == plain.learner->log_probabilities(tokens).values));
      }
}

BOOST_AUTO_TEST_CASE(a_reference_takes_the_weights_once_more_and_nothing_else) {
  Testing::start_kokkos_once();
  const std::string space = measure::built_spaces().front();
  for (const bool tied : {false, true}) {
    LearnerTask with = task(DType::bf16, tied);
    with.reference = true;
    const auto forecast = forecast_of(space, with), plain = forecast_of(space, task(DType::bf16, tied));
    for (int c = 0; c < memory_classes; ++c) {
      const auto memory_class = static_cast<MemoryClass>(c);
      const std::size_t more = forecast->peak(memory_class) - plain->peak(memory_class);
      // Each array begins at a multiple of 64 bytes.
      const std::size_t least = memory_class == MemoryClass::weights
                                    ? 2 * static_cast<std::size_t>(with.config.model_parameter_count())
                                    : 0;
      BOOST_TEST(more >= least);
      BOOST_TEST(more < least + (least > 0 ? 64 * 21 : 1));
    }
    const Training training(with);
    BOOST_TEST(training.ledger->peak_total() == forecast->peak_total());
  }
}

BOOST_AUTO_TEST_SUITE_END()
