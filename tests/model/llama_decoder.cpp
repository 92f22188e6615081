// SPDX-License-Identifier: MIT
// Incremental decoding against the references, and the generator on top of it.
#include "kformer/model/llama_decoder.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>

#include "kformer/model/generator.hpp"
#include "model/booked_memory.hpp"
#include "model/decoding.hpp"
#include "model/model_cases.hpp"
#include "model/model_run.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

DecoderOptions options_for(const ModelInputs& inputs) {
  return {.max_rows = inputs.shape.rows(),
          .max_logit_rows = inputs.shape.rows(),
          .max_positions = inputs.shape.seq_len + 1};
}

const SamplingOptions greedy{.temperature = 0};

std::vector<std::int32_t> tokens_of(const ModelInputs& inputs, std::size_t first, std::size_t count) {
  const auto begin = inputs.ids.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

/// A generation to its end.
template <class T>
std::vector<GeneratedSequence> generate(const ModelInputs& inputs, const GeneratorOptions& options,
                                        const std::vector<std::vector<std::int32_t>>& prompts,
                                        KvCacheOptions cache = {}) {
  cache.batch = options.batch;
  Decoding<T> run(
      inputs,
      {.max_rows = std::max<std::int64_t>(8, options.prefill_chunk), .max_logit_rows = 8, .max_positions = 64},
      cache);
  Generator<Exec, T> generator(run.decoder, *run.cache, options, *run.ledger);
  generator.start(Exec(), prompts);
  while (generator.running()) generator.step(Exec());
  return generator.sequences();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(llama_decoder)

BOOST_AUTO_TEST_CASE_TEMPLATE(steps_agree_with_the_references, T, Scalars) {
  std::mt19937 generator(1);
  for (const ModelCase& c : model_cases())
    for (const KvCacheKind kind : {KvCacheKind::contiguous, KvCacheKind::paged}) {
      for (const unsigned seed : {1u, 2u}) {
        const ModelInputs inputs = ModelInputs::random(c.config, c.shape, seed).template rounded<T>();
        Decoding<T> run(inputs, options_for(inputs), {.kind = kind, .batch = c.shape.batch, .page_tokens = 3});
        check_close<T>(std::string(c.name) + ", " + std::string(name_of(kind)),
                       stepwise_logits<T>(inputs, run.decoder, *run.cache, generator),
                       model_reference<naive_t<T>, T>(inputs).logits);
      }
    }
}

// Formats whose blocks hold these rows, alone and mixed so that the pieces of fused products differ.
BOOST_AUTO_TEST_CASE_TEMPLATE(quantized_weights_count_as_dequantized, T, Scalars) {
  std::mt19937 generator(2);
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape).template rounded<T>();
    std::vector<WeightFormats> mixtures;
    for (const QuantizedFormat format : {QuantizedFormat::q8_0, QuantizedFormat::q4_1, QuantizedFormat::nf4})
      mixtures.push_back(all_in(inputs, format));
    mixtures.push_back(all_in(inputs, QuantizedFormat::q8_0));
    for (auto it = mixtures.back().begin(); it != mixtures.back().end();)
      it = it->first.find("k_proj") != it->first.npos || it->first.find("up_proj") != it->first.npos
               ? mixtures.back().erase(it)
               : std::next(it);
    for (const WeightFormats& formats : mixtures) {
      DecoderOptions options = options_for(inputs);
      options.formats = formats;
      Decoding<T> run(inputs, options, {.batch = c.shape.batch});
      const ModelInputs as_stored = dequantized(inputs, formats);
      check_close<T>(std::string(c.name) + ", " + std::to_string(formats.size()) + " quantised",
                     stepwise_logits<T>(inputs, run.decoder, *run.cache, generator),
                     model_reference<naive_t<T>, T>(as_stored).logits);
    }
  }
}

BOOST_AUTO_TEST_CASE(weights_have_their_published_names) {
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
    const auto ledger = Ledger::create();
    const LlamaDecoder<Exec, bf16> decoder(c.config, {}, *ledger);
    std::int64_t elements = 0;
    std::size_t count = 0;
    for (const WeightSlot& slot : decoder.weights()) {
      BOOST_TEST(inputs.weights.contains(slot.name), slot.name);
      elements += slot.dense.size();
      ++count;
    }
    BOOST_TEST(count == inputs.weights.size());
    BOOST_TEST(elements == c.config.model_parameter_count());
  }
}

BOOST_AUTO_TEST_CASE(greedy_generation_follows_the_model) {
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, {1, 20});
    const std::vector<std::int32_t> prompt = tokens_of(inputs, 0, 5);
    const auto generated =
        generate<double>(inputs, {.max_new_tokens = 9, .prefill_chunk = 3, .sampling = greedy}, {prompt});
    BOOST_TEST(generated[0].new_tokens() == 9);
    BOOST_TEST((generated[0].stopped == StopReason::length));
    std::vector<std::int32_t> expected = prompt;
    for (int i = 0; i < 9; ++i) {
      ModelInputs so_far = inputs;
      so_far.shape = {1, static_cast<std::int64_t>(expected.size())};
      so_far.ids = so_far.targets = expected;
      const auto logits = model_reference<double, double>(so_far).logits;
      const std::int64_t last = so_far.shape.seq_len - 1;
      std::int64_t best = 0;
      double sum = 0;
      for (std::int64_t v = 1; v < c.config.vocab_size; ++v)
        if (logits(last, v) > logits(last, best)) best = v;
      for (std::int64_t v = 0; v < c.config.vocab_size; ++v)
        sum += std::exp(logits(last, v) - logits(last, best));
      BOOST_TEST(std::abs(generated[0].log_probabilities[expected.size()] + std::log(sum)) < 1e-12);
      expected.push_back(static_cast<std::int32_t>(best));
    }
    BOOST_TEST(generated[0].tokens == expected, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_batch_is_its_sequences_one_by_one) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 60});
  // Equal, nested and different beginnings, and lengths around the chunk.
  const std::vector<std::vector<std::int32_t>> prompts{tokens_of(inputs, 0, 7), tokens_of(inputs, 0, 7),
                                                       tokens_of(inputs, 0, 4), tokens_of(inputs, 3, 1),
                                                       tokens_of(inputs, 0, 9)};
  for (const double temperature : {0.0, 1.0})
    for (const KvCacheKind kind : {KvCacheKind::contiguous, KvCacheKind::paged})
      for (const bool share : {false, true}) {
        GeneratorOptions options{.batch = 5, .max_new_tokens = 8, .prefill_chunk = 3, .share_prefix = share};
        options.sampling = {.temperature = temperature, .seed = 7};
        const auto together = generate<double>(inputs, options, prompts, {.kind = kind, .page_tokens = 3});
        for (std::size_t s = 0; s < prompts.size(); ++s) {
          GeneratorOptions alone = options;
          alone.batch = 1;
          alone.sampling.first_stream = static_cast<std::int64_t>(s);
          const auto one = generate<double>(inputs, alone, {prompts[s]});
          BOOST_TEST(together[s].tokens == one[0].tokens, boost::test_tools::per_element());
        }
        if (temperature > 0) BOOST_TEST((together[0].tokens != together[1].tokens));
      }
}

// Both are exact. The window has dropped what the second prompt would see, but not what the third one would; the other
// is never cut.
BOOST_AUTO_TEST_CASE(prompts_share_only_what_their_cache_can_go_back_to) {
  LlamaConfig config = small_model();
  config.sliding_window = 4;
  const ModelInputs inputs = ModelInputs::random(config, {1, 60});
  std::vector<std::vector<std::int32_t>> prompts(3, tokens_of(inputs, 0, 41));
  prompts[1][10] = (prompts[0][10] + 1) % 75;
  prompts[2][39] = (prompts[0][39] + 1) % 75;
  const GeneratorOptions options{.batch = 3, .max_new_tokens = 8, .prefill_chunk = 3, .sampling = greedy};
  GeneratorOptions alone = options;
  alone.batch = 1;
  for (const KvCacheOptions& cache : {KvCacheOptions{.kind = KvCacheKind::window, .sinks = 0, .window = 4},
                                      KvCacheOptions{.kind = KvCacheKind::heavy_hitters, .budget = 64}}) {
    const auto together = generate<double>(inputs, options, prompts, cache);
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      const auto one = generate<double>(inputs, alone, {prompts[s]});
      BOOST_TEST(together[s].tokens == one[0].tokens, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_start_that_fails_leaves_nothing_running) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 20});
  Decoding<double> run(inputs, {.max_rows = 8, .max_logit_rows = 8, .max_positions = 64}, {});
  Generator<Exec, double> generator(run.decoder, *run.cache, {.max_new_tokens = 8, .prefill_chunk = 3},
                                    *run.ledger);
  const auto fail = []() -> bool { throw std::runtime_error("no"); };
  BOOST_CHECK_THROW(generator.start(Exec(), {tokens_of(inputs, 0, 7)}, fail), std::runtime_error);
  BOOST_TEST(!generator.running());
}

BOOST_AUTO_TEST_CASE(recomputing_everything_generates_the_same) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 60});
  const std::vector<std::vector<std::int32_t>> prompts{tokens_of(inputs, 0, 5), tokens_of(inputs, 9, 2)};
  GeneratorOptions options{.batch = 2, .max_new_tokens = 6, .prefill_chunk = 4, .sampling = greedy};
  const auto kept = generate<double>(inputs, options, prompts);
  options.recompute = true;
  const auto anew = generate<double>(inputs, options, prompts);
  for (std::size_t s = 0; s < 2; ++s) BOOST_TEST(kept[s].tokens == anew[s].tokens);
}

BOOST_AUTO_TEST_CASE(sequences_stop_by_themselves) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 60});
  const std::vector<std::vector<std::int32_t>> prompts{tokens_of(inputs, 0, 5), tokens_of(inputs, 9, 2)};
  GeneratorOptions options{.batch = 2, .max_new_tokens = 12, .sampling = greedy};
  const auto free = generate<double>(inputs, options, prompts);
  // The third new token of the first sequence ends it, and the other one where it says the same.
  options.end_of_text = {free[0].tokens[7]};
  const auto ended = generate<double>(inputs, options, prompts);
  for (std::size_t s = 0; s < 2; ++s) {
    const auto begin = free[s].tokens.begin() + free[s].prompt_tokens;
    const auto end = std::find(begin, free[s].tokens.end(), options.end_of_text[0]);
    std::vector<std::int32_t> expected(free[s].tokens.begin(), end);
    if (end != free[s].tokens.end()) expected.push_back(*end);
    BOOST_TEST(ended[s].tokens == expected, boost::test_tools::per_element());
    BOOST_TEST(
        (ended[s].stopped == (end != free[s].tokens.end() ? StopReason::end_of_text : StopReason::length)));
  }

  Decoding<double> run(inputs, {.max_rows = 512, .max_logit_rows = 2, .max_positions = 64}, {.batch = 2});
  Generator<Exec, double> generator(run.decoder, *run.cache, {.batch = 2, .max_new_tokens = 4}, *run.ledger);
  generator.start(Exec(), prompts);
  generator.step(Exec());
  generator.stop(0);
  while (generator.running()) generator.step(Exec());
  BOOST_TEST(generator.sequences()[0].new_tokens() == 1);
  BOOST_TEST((generator.sequences()[0].stopped == StopReason::caller));
  BOOST_TEST(generator.sequences()[1].new_tokens() == 4);
}

BOOST_AUTO_TEST_CASE(prompts_are_scored) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 11});
  const auto scored =
      generate<double>(inputs, {.max_new_tokens = 1, .prefill_chunk = 4, .score_prompt = true}, {inputs.ids});
  const auto logits = model_reference<double, double>(inputs).logits;
  BOOST_TEST(std::isnan(scored[0].log_probabilities[0]));
  for (std::int64_t i = 0; i + 1 < 11; ++i) {
    double sum = 0;
    for (std::int64_t v = 0; v < inputs.config.vocab_size; ++v) sum += std::exp(logits(i, v));
    const double expected = logits(i, inputs.ids[static_cast<std::size_t>(i) + 1]) - std::log(sum);
    BOOST_TEST(std::abs(scored[0].log_probabilities[static_cast<std::size_t>(i) + 1] - expected) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(without_a_number_among_the_logits_a_sequence_ends) {
  ModelInputs inputs = ModelInputs::random(small_model(), {1, 11});
  inputs.weights.at("model.norm.weight").values()[0] = std::numeric_limits<double>::quiet_NaN();
  const auto sequences = generate<float>(inputs, {.batch = 2, .max_new_tokens = 4},
                                         {tokens_of(inputs, 0, 3), tokens_of(inputs, 0, 5)});
  for (const GeneratedSequence& s : sequences) {
    BOOST_TEST((s.stopped == StopReason::no_token));
    BOOST_TEST(s.new_tokens() == 0);
    BOOST_TEST(s.log_probabilities.size() == s.tokens.size());
  }
}

BOOST_AUTO_TEST_CASE(a_repetition_penalty_sees_the_window) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 60});
  GeneratorOptions options{.max_new_tokens = 20};
  options.sampling = {.temperature = 0, .repetition_penalty = 1e30};
  const auto all = generate<double>(inputs, options, {tokens_of(inputs, 0, 3)});
  // A token may come back only once all others have: every one is new.
  auto sorted = all[0].tokens;
  std::ranges::sort(sorted);
  const auto unique = static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
  const std::size_t repeated_in_prompt =
      3 - std::min<std::size_t>(3, std::set<std::int32_t>(inputs.ids.begin(), inputs.ids.begin() + 3).size());
  BOOST_TEST(unique + repeated_in_prompt == all[0].tokens.size());
  options.repetition_window = 1;
  const auto near = generate<double>(inputs, options, {tokens_of(inputs, 0, 3)});
  for (std::size_t i = 3; i < near[0].tokens.size(); ++i)
    BOOST_TEST(near[0].tokens[i] != near[0].tokens[i - 1]);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ledger_forecast_and_witness_agree, T, Scalars) {
  for (const ModelCase& c : model_cases())
    for (const KvCacheKind kind : {KvCacheKind::contiguous, KvCacheKind::paged, KvCacheKind::int8})
      BOOST_TEST_CONTEXT(c.name << ", " << name_of(kind)) {
        const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
        const auto make = [&](const std::shared_ptr<Ledger>& ledger) {
          DecoderOptions options{.max_rows = 8, .max_logit_rows = 2, .max_positions = 40};
          options.formats = all_in(inputs, QuantizedFormat::q8_0);
          LlamaDecoder<Exec, T> decoder(c.config, options, *ledger);
          const auto cache = KvCache<Exec, T>::create(c.config,
                                                      {.kind = kind,
                                                       .num_layers = c.config.num_hidden_layers,
                                                       .batch = 2,
                                                       .capacity = 40,
                                                       .max_step_tokens = 8},
                                                      *ledger);
          const Generator<Exec, T> generator(decoder, *cache, {.batch = 2, .prefill_chunk = 8}, *ledger);
        };
        make(Ledger::create());  // the space's own scratch memory is set up now
        check_booked_memory(make);
      }
}

BOOST_AUTO_TEST_CASE(a_prompt_can_be_stopped_between_chunks) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 20});
  Decoding<float> run(inputs, {.max_rows = 4, .max_logit_rows = 2, .max_positions = 32}, {.batch = 2});
  Generator<Exec, float> generator(run.decoder, *run.cache,
                                   {.batch = 2, .prefill_chunk = 4, .share_prefix = false}, *run.ledger);
  const std::vector prompts{tokens_of(inputs, 0, 18), tokens_of(inputs, 1, 18)};
  int asked = 0;
  generator.start(Exec(), prompts, [&] { return ++asked == 4; });
  BOOST_TEST(generator.computed_tokens() == 3 * 4);
  BOOST_TEST(!generator.running());
  for (const GeneratedSequence& s : generator.sequences()) BOOST_TEST((s.stopped == StopReason::caller));
  generator.start(Exec(), prompts, [] { return false; });
  BOOST_TEST(generator.computed_tokens() == 2 * 17);
  BOOST_TEST(generator.running());
}

BOOST_AUTO_TEST_CASE(errors) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 20});
  Decoding<float> run(inputs, {.max_rows = 4, .max_logit_rows = 1, .max_positions = 16}, {});
  const auto make = [&](const GeneratorOptions& options) {
    return [&, options] { Generator<Exec, float>(run.decoder, *run.cache, options, *run.ledger); };
  };
  check_error<DimensionMismatch>(
      make({.prefill_chunk = 5}),
      "kformer::Generator: the decoder's max_rows is 4, expected at least 5, the prefill_chunk");
  check_error<DimensionMismatch>(
      make({.batch = 2, .prefill_chunk = 4}),
      "kformer::Generator: the decoder's max_logit_rows is 1, expected at least 2, the batch");
  Generator<Exec, float> generator(run.decoder, *run.cache, {.prefill_chunk = 4}, *run.ledger);
  check_error<DimensionMismatch>([&] { generator.start(Exec(), {}); },
                                 "kformer::Generator::start: 0 prompts, the generator was made for 1 to 1");
  check_error<DimensionMismatch>(
      [&] { generator.start(Exec(), {{}}); },
      "kformer::Generator::start: prompt 0 has no token; give the one that begins texts");
  check_error<DimensionMismatch>(
      [&] { generator.start(Exec(), {std::vector<std::int32_t>(17, 1)}); },
      "kformer::Generator::start: prompt 0 has 17 tokens, the decoder was made for 16 "
      "positions");
  const TestTensor<Exec, std::int32_t> ids({5}), one({1});
  LlamaDecoder<Exec, float> fresh(small_model(), {}, *run.ledger);
  check_error<NotSupported>(
      [&] { fresh.step(Exec(), one.view<1>(), one.view<1>(), *run.cache); },
      "kformer::LlamaDecoder::step: the rotary tables are empty; call prepare(exec) once, "
      "before the first step");
  check_error<DimensionMismatch>([&] { run.decoder.step(Exec(), ids.view<1>(), ids.view<1>(), *run.cache); },
                                 "kformer::LlamaDecoder::step: 5 rows, the decoder was made for at most 4");
  check_error<DimensionMismatch>(
      [&] {
        run.decoder.step(Exec(), Kokkos::subview(ids.view<1>(), std::pair(0, 4)), one.view<1>(), *run.cache);
      },
      "kformer::LlamaDecoder::step: extents do not match: positions[1]; expected positions[4]");
  check_error<NotSupported>([&] { run.decoder.logits(Exec(), one.view<1>()); },
                            "kformer::LlamaDecoder::logits: there are no hidden states; call step first");
  check_error<NotSupported>([&] { generator.stop(1); },
                            "kformer::Generator::stop: there is no sequence 1 among the 0 that were started");
  generator.start(Exec(), {{1, 2}});
  check_error<DimensionMismatch>([&] { run.decoder.logits(Exec(), ids.view<1>()); },
                                 "kformer::LlamaDecoder::logits: 5 rows, the decoder was made for at most 1");
}

BOOST_AUTO_TEST_CASE(a_decoder_that_was_moved_from_is_refused) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 20});
  Decoding<float> run(inputs, {.max_rows = 4, .max_logit_rows = 1, .max_positions = 16}, {});
  LlamaDecoder<Exec, float> from(small_model(), {}, *run.ledger);
  const LlamaDecoder<Exec, float> to = moved_out_of(from);
  const TestTensor<Exec, std::int32_t> one({1});
  const std::string gone = ": the object was moved from and has no memory; use the one it was moved to";
  check_error<NotSupported>([&] { from.prepare(Exec()); }, "kformer::LlamaDecoder::prepare" + gone);
  check_error<NotSupported>([&] { from.weights(); }, "kformer::LlamaDecoder::weights" + gone);
  check_error<NotSupported>([&] { from.step(Exec(), one.view<1>(), one.view<1>(), *run.cache); },
                            "kformer::LlamaDecoder::step" + gone);
  check_error<NotSupported>([&] { from.logits(Exec(), one.view<1>()); },
                            "kformer::LlamaDecoder::logits" + gone);
}

BOOST_AUTO_TEST_CASE(what_is_only_counted_is_refused) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 20});
  Decoding<float> run(inputs, {.max_rows = 4, .max_logit_rows = 1, .max_positions = 16}, {});
  const auto counting = Ledger::create(Ledger::Mode::count);
  const std::string lacks = " has no memory (null pointer, or a ledger that only counts); allocate it";
  const std::vector<std::int64_t> new_tokens{1};
  for (const KvCacheKind kind : {KvCacheKind::contiguous, KvCacheKind::paged, KvCacheKind::int8}) {
    const auto cache =
        KvCache<Exec, float>::create(inputs.config, {.kind = kind, .num_layers = 1, .capacity = 16}, *counting);
    check_error<DimensionMismatch>([&] { cache->begin_step(Exec(), new_tokens); },
                                   "kformer::KvCache::begin_step: the cache" + lacks);
  }
  Generator<Exec, float> generator(run.decoder, *run.cache, {.prefill_chunk = 4}, *counting);
  check_error<DimensionMismatch>([&] { generator.start(Exec(), {{1, 2}}); },
                                 "kformer::Generator::start: the generator" + lacks);
}

BOOST_AUTO_TEST_CASE(rows_that_the_last_step_did_not_have_have_no_logits) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 20});
  Decoding<float> run(inputs, {.max_rows = 4, .max_logit_rows = 4, .max_positions = 16}, {});
  TestTensor<Exec, std::int32_t> numbers({4}, Rows::packed);
  numbers.fill([](std::size_t i) { return static_cast<std::int32_t>(i); });
  const auto first = [&](int count) { return Kokkos::subview(numbers.view<1>(), std::pair(0, count)); };
  const auto numbers_in_rows = [&] {
    const auto host =
        Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), run.decoder.logits(Exec(), first(4)));
    std::vector<bool> numbers_in;
    for (std::size_t r = 0; r < host.extent(0); ++r) numbers_in.push_back(std::isfinite(host(r, 0)));
    return numbers_in;
  };
  const auto step = [&](int count) {
    const std::vector<std::int64_t> new_tokens{count};
    run.cache->begin_step(Exec(), new_tokens);
    run.decoder.step(Exec(), first(count), first(count), *run.cache);
    run.cache->end_step(Exec());
    return numbers_in_rows();
  };
  BOOST_TEST((step(3) == std::vector<bool>{true, true, true, false}));
  BOOST_TEST((step(1) == std::vector<bool>{true, false, false, false}));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
