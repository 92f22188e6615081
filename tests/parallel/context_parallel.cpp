// SPDX-License-Identifier: MIT
#include "parallel/context_runs.hpp"
#include "support/errors.hpp"

// Ranks that divide the tokens of sequences compute what one does.
namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(context_parallel)

BOOST_AUTO_TEST_CASE(ranks_that_divide_tokens_compute_what_one_does) {
  const auto ranks = world();
  const RankGrid grid = context_alone(ranks);
  for (const Kind& kind : kinds)
    for (const std::int64_t window : {0, 5}) {
      LlamaConfig config = model(kind, 1);
      config.sliding_window = window;
      TrainerOptions options = long_options(kind);
      const Run<double> alone(options, config, 0, 5);
      place_on(grid, options);
      Run<double> together(options, config, 0, 5);
      check_close_to(alone, together, std::string(kind.name) + ", window " + std::to_string(window));
    }
}

BOOST_AUTO_TEST_CASE(tokens_that_see_all_others) {
  const RankGrid grid = context_alone(world());
  const LlamaConfig config = model(kinds[0], 1);
  TrainerOptions options = long_options(kinds[0]);
  options.layer.causal = false;
  const Run<double> alone(options, config, 0, 3);
  place_on(grid, options);
  Run<double> together(options, config, 0, 3);
  check_close_to(alone, together, "not causal");
}

// Everything is divided at once.
BOOST_AUTO_TEST_CASE(grids_compute_what_one_rank_does) {
  const auto ranks = world();
  for (int context = 2; context <= ranks->size(); ++context)
    for (int tensor = 1; context * tensor <= ranks->size(); ++tensor) {
      if (ranks->size() % (context * tensor) != 0) continue;
      const int data = ranks->size() / (context * tensor);
      const RankGrid grid(ranks, {.data = data, .context = context, .tensor = tensor});
      for (const ZeroStage zero : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients}) {
        const LlamaConfig config = model(kinds[2], tensor);
        TrainerOptions options = long_options(kinds[2]);
        const Run<double> alone(options, config, 0, 2 * data);
        options.parallel = {.zero = zero, .overlap = tensor == 1};
        options.layer.sequence_parallel = zero == ZeroStage::optimizer;
        place_on(grid, options);
        Run<double> together(options, config, 2 * grid.place().data, 2);
        check_close_to(alone, together,
                       std::to_string(data) + " x " + std::to_string(context) + " x " + std::to_string(tensor) +
                           ", " + std::string(name_of(zero)));
      }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_agree_to_the_bit, T, Scalars) {
  const auto ranks = world();
  EqualOnAllRanks equal(ranks);
  TrainerOptions options = long_options(kinds[2]);
  place_on(context_alone(ranks), options);
  Run<T> run(options, model(kinds[2], 1), 0, 3);
  for (const StepReport& report : run.reports) {
    equal.check(report.loss, "loss");
    equal.check(report.gradient_norm, "norm");
  }
  for (const double loss : run.evaluations) equal.check(loss, "evaluation");
  for (const auto& [name, values] : run.weights())
    for (const double value : values) equal.check(value, name);
}

// The first rank has the first tokens and the last, and so on.
BOOST_AUTO_TEST_CASE(every_token_is_somewhere) {
  const auto ranks = world();
  TrainerOptions options = long_options(kinds[0]);
  place_on(context_alone(ranks), options);
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const Trainer<Exec, float> trainer(model(kinds[0], 1), options, *ledger);
  const int n = ranks->size();
  const std::int64_t chunk = long_sequence / (2 * n);
  for (std::int64_t sequence : {0, 1})
    for (std::int64_t token = 0; token < long_sequence; ++token) {
      const TokenPlace place = trainer.place_of(sequence, token);
      const auto number = static_cast<int>(token / chunk);
      BOOST_TEST(place.rank == std::min(number, 2 * n - 1 - number));
      BOOST_TEST(place.row == sequence * long_sequence / n + (number < n ? 0 : chunk) + token % chunk);
    }
}

BOOST_AUTO_TEST_CASE(forecasts_are_what_ranks_need) {
  const auto ranks = world();
  for (const Kind& kind : {kinds[0], kinds[2]})
    check_forecast<bf16>(ranks, long_options(kind), model(kind, 1), kind.name);
}

// Keys and values once in forward, and once in backward with their gradients.
BOOST_AUTO_TEST_CASE(bytes_are_those_of_the_formula) {
  const auto ranks = world();
  const RankGrid grid = context_alone(ranks);
  TrainerOptions options = long_options(kinds[0]);
  const LlamaConfig config = model(kinds[0], 1);
  place_on(grid, options);
  const auto ledger = Ledger::create();
  Trainer<Exec, double> trainer(config, options, *ledger);
  trainer.prepare(Exec());
  (void)trainer.step(Exec(), random_sequences(batch, long_sequence));
  std::uint64_t sent = 0;
  for (const auto& entry : grid.along(GridAxis::context)->log().counts()) sent += entry.bytes;
  const std::int64_t n = ranks->size();
  const std::int64_t own = batch * long_sequence / n * 2 * config.num_key_value_heads * config.head_dim *
                           std::int64_t(sizeof(double));
  BOOST_TEST(sent == static_cast<std::uint64_t>(3 * config.num_hidden_layers * (n - 1) * own));
}

BOOST_AUTO_TEST_CASE(what_needs_whole_sequences_is_refused) {
  const auto check_refused = [](LlamaConfig config, LayerOptions layer, const std::string& text) {
    layer.context = std::make_shared<LoneCommunicator>(1, 3);
    const auto ledger = Ledger::create(Ledger::Mode::count);
    check_error<NotSupported>([&] { LlamaModel<Exec, float>(config, {1, 4}, layer, *ledger); },
                              "kformer::LlamaModel: ranks divide the tokens (context), and " + text);
    for (int c = 0; c < memory_classes; ++c) BOOST_TEST(ledger->peak(static_cast<MemoryClass>(c)) == 0u);
  };
  LlamaConfig config = model(kinds[0], 1);
  check_refused(config, {.attention = AttentionAlgorithm::standard},
                "standard attention has whole sequences; choose AttentionAlgorithm::flash");
  config.sliding_window = 3;
  check_refused(config, {.causal = false},
                "a window without a causal mask lies across them; set `causal`, or leave out `context`");
}

BOOST_AUTO_TEST_CASE(trainings_that_cannot_be_divided_are_refused) {
  const auto lone = std::make_shared<LoneCommunicator>(0, 3);
  const auto make = [&](const TrainerOptions& options) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    Trainer<Exec, float>(model(kinds[0], 1), options, *ledger);
  };
  TrainerOptions options = long_options(kinds[0]);
  options.layer.context = lone;
  check_error<NotSupported>(
      [&] { make(options); },
      "kformer::Trainer: ranks divide the tokens (context), so that gradients are sums over "
      "ranks; set parallel.ranks to RankGrid::replicas()");
  options.parallel.ranks = lone;
  options.shape.seq_len = 47;
  check_error<NotSupported>(
      [&] { make(options); },
      "kformer::Trainer: shape.seq_len 47 is no multiple of 6, two chunks for each of the ranks "
      "that divide the tokens (context)");
  options.shape.seq_len = 48;
  options.parallel.fixed_order = true;
  check_error<NotSupported>(
      [&] { make(options); },
      "kformer::Trainer: fixed_order adds up whole micro-batches, but ranks divide their tokens "
      "(context); leave out one");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
