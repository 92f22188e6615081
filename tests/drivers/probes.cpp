// SPDX-License-Identifier: MIT
// What a scaling study makes of the times of its calls.
#include "scaling/grid_probes.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <vector>

#include "measure/spaces.hpp"
#include "start_kokkos_once.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;

// Each sample of one rank.
TurnSamples samples_of(const std::vector<double>& seconds) {
  TurnSamples samples;
  for (const double s : seconds) samples.seconds.push_back({s});
  return samples;
}

// A model of so many layers on one rank, whose memory is only counted.
struct Study {
  explicit Study(std::int64_t layers, PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward) {
    Testing::start_kokkos_once();
    LanguageModelTable model;
    model.hidden_size = 16;
    model.num_attention_heads = model.num_key_value_heads = 2;
    model.head_dim = 8;
    model.intermediate_size = 24;
    model.num_hidden_layers = layers;
    model.vocab_size = 30;
    model.tie_word_embeddings = true;
    deck.model = model;
    deck.batch = {.seq_len = 8, .micro_batch = 1, .sequences = 3};
    step.config = {.hidden_size = 16,
                   .intermediate_size = 24,
                   .num_attention_heads = 2,
                   .num_key_value_heads = 2,
                   .head_dim = 8,
                   .num_hidden_layers = layers,
                   .vocab_size = 30,
                   .tie_word_embeddings = true};
    step.micro_batch = {1, 8};
    step.micro_batches = 3;
    step.place = {.data = 0, .context = 0, .tensor = 0, .pipeline = 0};
    step.pipeline.schedule = schedule;
    const RankGrid ranks(std::make_shared<LoneCommunicator>(), {});
    probes = std::make_unique<GridProbes>(deck, measure::built_spaces().front(), PlanParallelTable(), ranks,
                                          step, 1, Ledger::create(Ledger::Mode::count));
  }

  ScalingDeck deck;
  StepShape step;
  std::unique_ptr<GridProbes> probes;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(probes)

BOOST_AUTO_TEST_CASE(of_several_ranks_the_slowest_counts_or_the_mean_of_those_that_compute) {
  TurnSamples samples;
  samples.seconds = {{1, 4, 2}, {3, 1, 8}};
  samples.inner_iterations = 5;
  BOOST_TEST(samples.slowest().seconds == (std::vector<double>{4, 8}), boost::test_tools::per_element());
  BOOST_TEST(samples.slowest().inner_iterations == 5);
  BOOST_TEST(samples.mean_of_first(2) == (std::vector<double>{2.5, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(calls_are_timed_in_turns) {
  LoneCommunicator alone;
  std::vector<int> turns;
  const TimingTable timing{.warmup = 2, .repeats = 3, .min_time_s = 0, .max_time_s = 0};
  const auto samples =
      sample_in_turns(alone, timing, {[&] { turns.push_back(0); }, [&] { turns.push_back(1); }});
  BOOST_TEST(turns == (std::vector<int>{0, 0, 1, 1, 0, 1, 0, 1, 0, 1}), boost::test_tools::per_element());
  BOOST_TEST_REQUIRE(samples.size() == 2u);
  BOOST_TEST(samples[1].seconds.size() == 3u);
  BOOST_TEST(samples[1].seconds[0].size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_time_limit_ends_a_turn_and_no_call) {
  LoneCommunicator alone;
  std::vector<int> turns;
  const TimingTable timing{.warmup = 0, .repeats = 9, .min_time_s = 0, .max_time_s = 1e-9};
  const auto samples =
      sample_in_turns(alone, timing, {[&] { turns.push_back(0); }, [&] { turns.push_back(1); }});
  BOOST_TEST(turns == (std::vector<int>{0, 1, 0, 1}), boost::test_tools::per_element());
  BOOST_TEST(samples[0].seconds.size() == 1u);
}

// Three micro-batches take 12 more than one, whatever disturbs both: each takes 6, and an update the median of the rest, 5.
BOOST_AUTO_TEST_CASE(kernel_times_follow_from_layers_and_steps) {
  const auto times = [](std::int64_t layers, double forward, double backward) {
    const Study study(layers);
    const std::vector<TurnSamples> samples{samples_of({forward, 9, forward}),
                                           samples_of({backward, 9, backward}), samples_of({0, 0, 0}),
                                           samples_of({10, 30, 11}), samples_of({22, 42, 23})};
    return study.probes->times(samples);
  };
  const double layer = 4 * 16 * 16 + 3 * 16 * 24 + 2 * 16, ends = 16 * 30 + 16;
  KernelTimes found = times(1, 1, 2);
  BOOST_TEST((found.forward == 1 && found.backward == 2 && found.weights == 0));
  BOOST_TEST(found.ends == 3, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(found.update == 5 / (layer + ends), boost::test_tools::tolerance(1e-12));
  // Layers that are timed one by one wait more often than in a step.
  found = times(3, 1, 2);
  BOOST_TEST(found.forward == 6.0 / 9, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(found.backward == 2 * 6.0 / 9, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(found.ends < 1e-12);
  BOOST_TEST(found.update == 5 / (3 * layer + ends), boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(gradients_of_weights_that_are_work_of_their_own_are_what_they_add) {
  const Study study(1, PipelineSchedule::zero_bubble);
  const std::vector<TurnSamples> samples{samples_of({1, 1, 1}), samples_of({2, 5, 2}),
                                         samples_of({3.5, 6.5, 9}), samples_of({20, 20, 20}),
                                         samples_of({40, 40, 40})};
  const KernelTimes found = study.probes->times(samples);
  BOOST_TEST((found.forward == 1 && found.backward == 6.5 && found.weights == 1.5));
  BOOST_TEST(found.ends == 2.5, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_SUITE_END()
