// SPDX-License-Identifier: MIT
// What a generator and its cache are after a call that threw, and after calls in another order than usual.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/generation.hpp"
#include "support/errors.hpp"
#include "support/interruption.hpp"

namespace kformer::Testing {
namespace {

KvCacheOptions options_of(KvCacheKind kind) {
  return {.kind = kind, .batch = 2, .page_tokens = 3, .sinks = 1, .window = 3, .budget = 64};
}

constexpr KvCacheKind every_kind[] = {KvCacheKind::contiguous, KvCacheKind::paged, KvCacheKind::window,
                                      KvCacheKind::int8, KvCacheKind::heavy_hitters};
constexpr KvCacheKind that_go_back[] = {KvCacheKind::contiguous, KvCacheKind::paged, KvCacheKind::int8};

/// A generator of two sequences with a cache of its own, which chooses the most probable tokens.
struct Generation {
  Decoding<double> run;
  Generator<Exec, double> generator;

  explicit Generation(const KvCacheOptions& kept, const ModelInputs& inputs = some_inputs())
      : run(inputs, {.max_rows = 8, .max_logit_rows = 2, .max_positions = 64}, kept),
        generator(run.decoder, *run.cache,
                  {.batch = 2, .max_new_tokens = 9, .prefill_chunk = 4, .sampling = {.temperature = 0}},
                  *run.ledger) {}

  void go_on() {
    while (generator.running()) generator.step(Exec());
  }
  void check_same(const Generation& other) const {
    const auto &found = generator.sequences(), &expected = other.generator.sequences();
    BOOST_TEST_REQUIRE(found.size() == expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) {
      BOOST_TEST(found[s].tokens == expected[s].tokens, boost::test_tools::per_element());
      const bool same =
          std::ranges::equal(found[s].log_probabilities, expected[s].log_probabilities,
                             [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
      BOOST_TEST(same, "the scores of sequence " << s);
    }
  }
};

Prompts two_prompts() {
  const std::vector<std::int32_t> ids = some_inputs().ids;
  return {{ids.begin(), ids.begin() + 7}, {ids.begin() + 20, ids.begin() + 29}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generation_failures)

BOOST_AUTO_TEST_CASE(a_start_that_failed_leaves_no_sequences_and_an_empty_cache) {
  for (const KvCacheKind kind : every_kind) BOOST_TEST_CONTEXT(name_of(kind)) {
      Generation run(options_of(kind)), whole(options_of(kind));
      // In the first layer of the first chunk, in the last one, and in the second prompt.
      for (const int call : {1, 3, 8}) {
        {
          const Interruption interruption("attention_forward", call);
          BOOST_CHECK_THROW(run.generator.start(Exec(), two_prompts()), Interrupted);
        }
        BOOST_TEST(run.generator.sequences().empty());
        for (const std::int64_t s : {0, 1}) BOOST_TEST(run.run.cache->length(s) == 0);
        BOOST_TEST(run.run.cache->used_slots() == 0);
      }
      for (Generation* g : {&run, &whole}) {
        g->generator.start(Exec(), two_prompts());
        g->go_on();
      }
      run.check_same(whole);
    }
}

BOOST_AUTO_TEST_CASE(a_step_that_failed_can_be_repeated) {
  for (const KvCacheKind kind : every_kind) BOOST_TEST_CONTEXT(name_of(kind)) {
      Generation run(options_of(kind)), whole(options_of(kind));
      for (Generation* g : {&run, &whole}) g->generator.start(Exec(), two_prompts());
      const bool goes_back = std::ranges::count(that_go_back, kind) > 0;
      for (int n = 0; run.generator.running(); ++n) {
        // Before the cache has the tokens, and afterwards.
        const bool late = goes_back && n % 2 == 1;
        {
          const Interruption interruption(late ? "sample" : "attention_forward", late ? 1 : 1 + n % 5);
          BOOST_CHECK_THROW(run.generator.step(Exec()), Interrupted);
        }
        run.check_same(whole);
        if (!late)
          for (const auto& logits : run.generator.step_logits(Exec())) BOOST_TEST(logits.empty());
        for (Generation* g : {&run, &whole}) g->generator.step(Exec());
      }
      run.check_same(whole);
    }
}

BOOST_AUTO_TEST_CASE(final_logits_change_nothing) {
  for (const KvCacheKind kind : every_kind) BOOST_TEST_CONTEXT(name_of(kind)) {
      Generation run(options_of(kind)), whole(options_of(kind));
      for (Generation* g : {&run, &whole}) {
        g->generator.start(Exec(), two_prompts());
        g->generator.step(Exec());
      }
      const auto logits = run.generator.final_logits(Exec());
      BOOST_TEST((run.generator.final_logits(Exec()) == logits));
      for (const std::int64_t s : {0, 1})
        BOOST_TEST(run.run.cache->length(s) == std::ssize(run.generator.sequences()[s].tokens));
      if (kind == KvCacheKind::heavy_hitters)
        check_error<NotSupported>(
            [&] { run.generator.step(Exec()); },
            "kformer::Generator::step: the cache has seen the last token of sequence 0 (after final_logits, a "
            "step that failed, or no_token), and a heavy_hitters cache cannot go back; call start with its "
            "tokens");
      if (std::ranges::count(that_go_back, kind) == 0) continue;
      run.go_on(), whole.go_on();
      run.check_same(whole);
      // Other tokens, other logits.
      BOOST_TEST((run.generator.final_logits(Exec()) != logits));
    }
}

BOOST_AUTO_TEST_CASE(final_logits_compute_what_an_interrupted_start_left_out) {
  for (const KvCacheKind kind : every_kind) BOOST_TEST_CONTEXT(name_of(kind)) {
      Generation cut(options_of(kind)), whole(options_of(kind));
      int chunks = 0;
      cut.generator.start(Exec(), two_prompts(), [&] { return ++chunks > 1; });
      BOOST_TEST(!cut.generator.running());
      whole.generator.start(Exec(), two_prompts());
      BOOST_TEST((cut.generator.final_logits(Exec()) == whole.generator.final_logits(Exec())));
    }
}

BOOST_AUTO_TEST_CASE(a_token_that_chose_none_is_fed_once) {
  ModelInputs inputs = some_inputs();
  for (double& w : inputs.weights.at("lm_head.weight").values()) w = std::numeric_limits<double>::quiet_NaN();
  for (const KvCacheKind kind : that_go_back) BOOST_TEST_CONTEXT(name_of(kind)) {
      Generation run(options_of(kind), inputs);
      run.generator.start(Exec(), two_prompts());
      run.go_on();
      run.generator.final_logits(Exec());
      for (const std::int64_t s : {0, 1}) {
        const GeneratedSequence& sequence = run.generator.sequences()[s];
        BOOST_TEST((sequence.stopped == StopReason::no_token));
        BOOST_TEST(run.run.cache->length(s) == std::ssize(sequence.tokens));
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
