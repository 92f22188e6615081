// SPDX-License-Identifier: MIT
// Sequences of a batch: what they share, and what each has of its own.
#include <algorithm>
#include <cmath>

#include "model/generation.hpp"

namespace kformer::Testing {
namespace {

/// A generator of three sequences with a cache of its own.
struct Batch {
  Decoding<double> run;
  Generator<Exec, double> generator;

  explicit Batch(GeneratorOptions options)
      : run(some_inputs(), {.max_rows = 8, .max_logit_rows = 3, .max_positions = 64}, {.batch = 3}),
        generator(run.decoder, *run.cache, three(options), *run.ledger) {}

  static GeneratorOptions three(GeneratorOptions options) {
    options.batch = 3;
    options.max_new_tokens = 12;
    options.prefill_chunk = 4;
    return options;
  }

  /// Generates to the end; the sequences `stopped` end after two tokens.
  std::vector<GeneratedSequence> generate(const Prompts& prompts,
                                          const std::vector<std::int64_t>& stopped = {}) {
    generator.start(Exec(), prompts);
    for (int step = 0; generator.running(); ++step) {
      if (step == 2)
        for (const std::int64_t s : stopped) generator.stop(s);
      generator.step(Exec());
    }
    return generator.sequences();
  }
};

/// The same tokens, and the same scores but for rounding, where a token has one.
void check_same(const GeneratedSequence& sequence, const GeneratedSequence& expected) {
  BOOST_TEST(sequence.tokens == expected.tokens, boost::test_tools::per_element());
  BOOST_TEST_REQUIRE(sequence.log_probabilities.size() == expected.log_probabilities.size());
  for (std::size_t i = 0; i < expected.log_probabilities.size(); ++i) {
    const double found = sequence.log_probabilities[i], wanted = expected.log_probabilities[i];
    if (std::isnan(wanted))
      BOOST_TEST(std::isnan(found), "the score of token " << i);
    else
      BOOST_TEST(std::abs(found - wanted) <= 1e-12 * std::abs(wanted), "the score of token " << i);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generation_batches)

// The last token that two prompts share has a score of its own: what follows it differs.
BOOST_AUTO_TEST_CASE(a_shared_prefix_changes_neither_tokens_nor_scores) {
  const std::vector<std::int32_t> ids = some_inputs().ids;
  Prompts prompts(3, {ids.begin(), ids.begin() + 17});
  prompts[1][9] = (prompts[0][9] + 1) % 75;
  prompts[2].resize(11);
  for (const bool score_prompt : {true, false}) {
    const GeneratorOptions apart{
        .share_prefix = false, .score_prompt = score_prompt, .sampling = {.temperature = 0}};
    GeneratorOptions shared = apart;
    shared.share_prefix = true;
    Batch one(apart), other(shared);
    const auto expected = one.generate(prompts), found = other.generate(prompts);
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      BOOST_TEST_CONTEXT("sequence " << s << (score_prompt ? ", scored" : ""))
      check_same(found[s], expected[s]);
      BOOST_TEST(std::isnan(expected[s].log_probabilities[1]) != score_prompt);
    }
    // Nine tokens of the second prompt, or eight whose scores are known; ten of the third.
    const std::int64_t saved = (score_prompt ? 8 : 9) + 10;
    BOOST_TEST(one.generator.computed_tokens() - other.generator.computed_tokens() == saved);
  }
}

// Sequences draw from streams of their own, whichever others go on.
BOOST_AUTO_TEST_CASE(sequences_that_end_leave_the_draws_of_others_alone) {
  const std::vector<std::int32_t> ids = some_inputs().ids;
  const Prompts prompts(3, {ids.begin(), ids.begin() + 5});
  const GeneratorOptions options{.sampling = {.temperature = 2, .seed = 3}};
  const auto whole = Batch(options).generate(prompts);
  BOOST_TEST(whole[0].tokens != whole[1].tokens);
  BOOST_TEST(whole[1].tokens != whole[2].tokens);
  for (const std::vector<std::int64_t>& stopped :
       {std::vector<std::int64_t>{0}, std::vector<std::int64_t>{1}, std::vector<std::int64_t>{0, 1}}) {
    const auto rest = Batch(options).generate(prompts, stopped);
    for (std::size_t s = 0; s < rest.size(); ++s) {
      const bool ends = std::ranges::count(stopped, static_cast<std::int64_t>(s)) > 0;
      BOOST_TEST((rest[s].stopped == (ends ? StopReason::caller : StopReason::length)));
      BOOST_TEST(rest[s].new_tokens() == (ends ? 2 : 12));
      BOOST_TEST_CONTEXT("sequence " << s) if (!ends) check_same(rest[s], whole[s]);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
