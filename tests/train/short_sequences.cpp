// SPDX-License-Identifier: MIT
// A trainer computes a micro-batch up to its longest sequence, and nothing behind it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "kformer/train/preference_loss.hpp"
#include "support/distance.hpp"
#include "train/training_run.hpp"

namespace kformer::Testing {
namespace {

constexpr std::int32_t no_loss = CrossEntropyOptions().ignore_index;
constexpr std::int64_t most = 40;

/// Sequences whose last target with a loss is at `lengths` − 1; `filler` are the tokens that follow.
std::vector<TokenSequence> sequences_of(const std::vector<std::int64_t>& lengths, std::int32_t filler = 0,
                                        unsigned seed = 5) {
  auto all = random_sequences(std::ssize(lengths), most, seed);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (auto t = static_cast<std::size_t>(lengths[i]); t < static_cast<std::size_t>(most); ++t) {
      all[i].ids[t] = filler;
      all[i].targets[t] = no_loss;
    }
  return all;
}

std::vector<TokenSequence> first_tokens(std::vector<TokenSequence> all, std::int64_t seq_len) {
  for (TokenSequence& s : all) {
    s.ids.resize(static_cast<std::size_t>(seq_len));
    s.targets.resize(static_cast<std::size_t>(seq_len));
  }
  return all;
}

TrainerOptions options_for(std::int64_t seq_len, std::int64_t batch = 2) {
  TrainerOptions options = some_trainer_options(batch);
  options.shape.seq_len = seq_len;
  return options;
}

TrainerOptions adapted_options(std::int64_t seq_len, double dropout = 0) {
  TrainerOptions options = options_for(seq_len);
  options.layer.lora = LoraConfig::all(3, 6);
  options.layer.lora.dropout = dropout;
  return options;
}

/// With these all sequences are computed to their end.
TrainerOptions whole(TrainerOptions options) {
  options.layer.packed = true;
  return options;
}

/// DPO whose reference is the model without its adapters.
template <class T>
StepReport preference_step(TrainingRun<T>& run, const std::vector<TokenSequence>& sequences) {
  const LogProbabilities base = run.trainer.log_probabilities(Exec(), sequences, AdapterUse::off);
  std::vector<double> references;
  for (std::size_t i = 0; i < sequences.size(); ++i) references.push_back(base.sum(i));
  PreferenceObjective objective(references, {.beta = 0.3});
  return run.trainer.step(Exec(), sequences, std::ref(objective));
}

template <class T>
std::vector<double> gradient(TrainingRun<T>& run) {
  std::vector<double> all;
  for (const Parameter& p : run.trainer.model().trained()) {
    const auto values = read_gradient<double, compute_t<T>>(p).values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

ComputedTokens computed(std::int64_t sequences, std::int64_t length) {
  ComputedTokens all;
  all.add(sequences, length);
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(short_sequences)

// 17 tokens are rounded up to 24.
BOOST_AUTO_TEST_CASE_TEMPLATE(train_as_if_there_were_no_memory_for_longer_ones, T, Scalars) {
  const auto sequences = sequences_of({17, 3, 9, 17}), mixed = sequences_of({17, 3, 4, 8}, 0, 7);
  std::vector<std::function<TrainerOptions(std::int64_t)>> kinds;
  for (const Recompute kind : {Recompute::none, Recompute::pointwise, Recompute::layer, Recompute::nested})
    kinds.push_back([kind](std::int64_t seq_len) {
      TrainerOptions options = options_for(seq_len);
      options.layer.recompute = kind;
      return options;
    });
  kinds.push_back([](std::int64_t seq_len) {
    TrainerOptions options = options_for(seq_len, 4);
    options.layer.accumulate = false;
    return options;
  });
  kinds.push_back([](std::int64_t seq_len) {
    TrainerOptions options = options_for(seq_len);
    options.layer.attention = AttentionAlgorithm::standard;
    return options;
  });
  kinds.push_back([](std::int64_t seq_len) { return adapted_options(seq_len); });
  for (std::size_t i = 0; i < kinds.size(); ++i) BOOST_TEST_CONTEXT("kind " << i) {
      auto run = run_of<T>(kinds[i](most)), expected = run_of<T>(kinds[i](24));
      for (const auto& some : {mixed, sequences}) {
        BOOST_TEST(run.trainer.evaluate(Exec(), some) ==
                   expected.trainer.evaluate(Exec(), first_tokens(some, 24)));
        const StepReport a = run.step(some), b = expected.step(first_tokens(some, 24));
        BOOST_TEST((a.loss == b.loss && a.gradient_norm == b.gradient_norm && a.tokens == b.tokens));
        BOOST_TEST((a.computed == b.computed));
        const StepReport c = preference_step(run, some), d = preference_step(expected, first_tokens(some, 24));
        BOOST_TEST((c.loss == d.loss && c.gradient_norm == d.gradient_norm && !c.skipped));
      }
      BOOST_TEST((run.bits() == expected.bits()));
    }
}

// The promise of batch invariance, of forward: padding changes no bit.
BOOST_AUTO_TEST_CASE_TEMPLATE(have_the_losses_of_whole_ones, T, Scalars) {
  const auto sequences = sequences_of({17, 3, 40, 8, 1, 2});
  for (TrainerOptions options : {options_for(most), adapted_options(most), adapted_options(most, 0.4)}) {
    options.layer.batch_invariant = true;
    auto run = run_of<T>(options), expected = run_of<T>(whole(options));
    for (const AdapterUse use : {AdapterUse::on, AdapterUse::off}) {
      const LogProbabilities found = run.trainer.log_probabilities(Exec(), sequences, use),
                             wanted = expected.trainer.log_probabilities(Exec(), sequences, use);
      BOOST_TEST((found.values == wanted.values));
      BOOST_TEST((found.offsets == wanted.offsets));
    }
    BOOST_TEST(run.trainer.evaluate(Exec(), sequences) == expected.trainer.evaluate(Exec(), sequences));
    // With dropout, too: a token loses what it would lose in a whole sequence.
    BOOST_TEST(run.step(sequences).loss == expected.step(sequences).loss);
  }
}

// Sums over tokens are grouped otherwise, so that gradients are equal to rounding.
BOOST_AUTO_TEST_CASE(have_the_gradients_of_whole_ones) {
  const auto sequences = sequences_of({17, 3, 40, 8, 1, 2});
  for (const TrainerOptions& options : {options_for(most), adapted_options(most), adapted_options(most, 0.4)})
    for (const bool pairs : {false, true}) {
      auto run = run_of<double>(options), expected = run_of<double>(whole(options));
      const auto step = [&](TrainingRun<double>& of) {
        return pairs ? preference_step(of, sequences) : of.step(sequences);
      };
      const StepReport found = step(run), wanted = step(expected);
      BOOST_TEST(std::abs(found.loss - wanted.loss) <= 1e-12 * wanted.loss);
      check_near("gradients", gradient(run), gradient(expected), 1e-12);
    }
}

// A token outside the vocabulary makes what it meets NaN: those behind the last target meet nothing.
BOOST_AUTO_TEST_CASE_TEMPLATE(are_computed_to_the_last_target_and_no_further, T, Scalars) {
  // Of micro-batches of two: 16, 8, and 24 of one sequence.
  const auto sequences = sequences_of({16, 16, 8, 8, 24}, -1);
  auto run = run_of<T>(options_for(most)), all = run_of<T>(whole(options_for(most)));
  BOOST_TEST(std::isfinite(run.trainer.evaluate(Exec(), sequences)));
  const StepReport report = run.step(sequences);
  BOOST_TEST((!report.skipped && std::isfinite(report.gradient_norm)));
  BOOST_TEST(report.computed.tokens == 2 * 16 + 2 * 8 + 24);
  BOOST_TEST(report.computed.pairs == 2 * 16 * 16 + 2 * 8 * 8 + 24 * 24);
  const StepReport of_all = all.step(sequences);
  BOOST_TEST((of_all.skipped && !std::isfinite(of_all.gradient_norm)));
  BOOST_TEST((of_all.computed == computed(5, most)));
}

BOOST_AUTO_TEST_CASE(are_rounded_up) {
  auto run = run_of<float>(options_for(most));
  for (const auto& [length, expected] :
       {std::pair<std::int64_t, std::int64_t>{1, 8}, {8, 8}, {9, 16}, {33, 40}, {40, 40}})
    BOOST_TEST((run.step(sequences_of({length, 1})).computed == computed(2, expected)));
  auto odd = run_of<float>(options_for(21));
  BOOST_TEST((odd.step(first_tokens(sequences_of({17, 1}), 21)).computed == computed(2, 21)));
  // 64 rows of 65 would need more workspace.
  auto one = run_of<float>(options_for(65, 1));
  auto sequence = random_sequences(1, 65);
  std::fill(sequence[0].targets.begin() + 60, sequence[0].targets.end(), no_loss);
  BOOST_TEST((one.step(sequence).computed == computed(1, 65)));
  auto nothing = sequences_of({0, 0});
  const StepReport report = run.step(nothing);
  BOOST_TEST((report.skipped && report.computed == ComputedTokens()));
}

// Every token sees all others.
BOOST_AUTO_TEST_CASE(are_whole_without_a_causal_mask) {
  TrainerOptions options = options_for(most);
  options.layer.causal = false;
  auto run = run_of<double>(options);
  BOOST_TEST((run.step(sequences_of({17, 3})).computed == computed(2, most)));
}

// What is computed of whole sequences afterwards is what it was.
BOOST_AUTO_TEST_CASE(leave_the_model_as_it_was) {
  auto run = run_of<double>(options_for(most)), fresh = run_of<double>(options_for(most));
  const auto sequences = sequences_of({17, 3});
  const TestTensor<Exec, double> logits({1, small_model().vocab_size});
  const auto last = [&](TrainingRun<double>& of) {
    of.trainer.forward(Exec(), sequences);
    of.trainer.logits(Exec(), 1, most - 1, logits.template view<2>());
    Exec().fence("kformer::Testing::short_sequences");
    return logits.template read<double>().values();
  };
  const auto expected = last(fresh);
  run.trainer.evaluate(Exec(), sequences);
  BOOST_TEST((last(run) == expected));
  const Objective throws = [](std::size_t, const LogProbabilities&) -> ObjectiveShare {
    throw std::runtime_error("judge");
  };
  BOOST_CHECK_THROW(static_cast<void>(run.trainer.step(Exec(), sequences, throws)), std::runtime_error);
  BOOST_TEST((last(run) == expected));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(need_the_memory_of_the_forecast, T, Scalars) {
  for (const TrainerOptions& options : {options_for(most), adapted_options(most, 0.4)}) {
    const auto forecast = Ledger::create(Ledger::Mode::count);
    {
      const Trainer<Exec, T> trainer(small_model(), options, *forecast);
    }
    auto run = run_of<T>(options);
    preference_step(run, sequences_of({17, 3, 9, 40}));
    for (int c = 0; c < memory_classes; ++c)
      BOOST_TEST(run.ledger->peak(static_cast<MemoryClass>(c)) == forecast->peak(static_cast<MemoryClass>(c)));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
