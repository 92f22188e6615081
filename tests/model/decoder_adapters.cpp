// SPDX-License-Identifier: MIT
// Decoders with several adapters.
#include "model/decoder_adapters.hpp"
#include "kformer/model/generator.hpp"
#include "model/booked_memory.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

/// Which adapters have magnitudes: the last has them for one map only, the first for maps of a fused weight with one
/// that has none.
const std::vector<std::set<std::size_t>> scalings{{}, {0, 2}, {1}, {0, 1, 2}};

std::string text(const std::set<std::size_t>& scaled) {
  std::string text = ", magnitudes";
  for (const std::size_t k : scaled) {
    text += ' ';
    text += std::to_string(k);
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(decoder_adapters)

BOOST_AUTO_TEST_CASE_TEMPLATE(sequences_of_a_batch_have_adapters_of_their_own, T, Scalars) {
  std::mt19937 generator(6);
  const std::vector<std::int32_t> adapters{1, -1, 0, 2, 0};
  for (const ModelCase& c : model_cases())
    for (const auto& scaled : scalings) {
      const SeveralAdapters all = SeveralAdapters::random<T>(c.config, {5, 4}, 10, scaled);
      auto run = decoding_with<T>(all, {0, 1, 2});
      check_close<T>(c.name + text(scaled),
                     stepwise_logits<T>(all.base, run.decoder, *run.cache, generator, adapters),
                     all.reference<T>(adapters));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(quantised_weights_have_adapters, T, Scalars) {
  std::mt19937 generator(7);
  const std::vector<std::int32_t> adapters{0, -1, 1};
  for (const ModelCase& c : model_cases())
    for (const auto& [format, scaled] : {std::pair(QuantizedFormat::q8_0, scalings[0]),
                                         {QuantizedFormat::nf4, scalings[0]},
                                         {QuantizedFormat::q8_0, scalings[1]},
                                         {QuantizedFormat::nf4, scalings[3]}}) {
      SeveralAdapters all = SeveralAdapters::random<T>(c.config, {3, 4}, 20, scaled);
      const WeightFormats formats = all_in(all.base, format);
      auto several = decoding_with<T>(all, {0, 1}, formats), one = decoding_with<T>(all, {1}, formats);
      const ModelInputs as_stored = dequantized(all.base, formats);
      for (ModelInputs* inputs : {&all.base, &all.adapted[0], &all.adapted[1]})
        for (const auto& [name, t] : as_stored.weights) inputs->weights[name] = t;
      const std::string name = std::string(c.name) + ", " + std::string(to_string(format)) + text(scaled);
      check_close<T>(name, stepwise_logits<T>(all.base, several.decoder, *several.cache, generator, adapters),
                     all.reference<T>(adapters));
      check_close<T>(name + ", the only adapter",
                     stepwise_logits<T>(all.base, one.decoder, *one.cache, generator),
                     all.reference<T>({1, 1, 1}));
    }
}

// Steps are the same, so that products have as many rows and the same kernels.
BOOST_AUTO_TEST_CASE_TEMPLATE(without_an_adapter_a_token_has_the_bits_of_the_base, T, Scalars) {
  for (const ModelCase& c : model_cases())
    for (const auto& scaled : scalings) BOOST_TEST_CONTEXT(c.name << text(scaled)) {
        std::mt19937 generator(8), again(8);
        const SeveralAdapters all = SeveralAdapters::random<T>(c.config, {3, 4}, 30, scaled);
        auto with = decoding_with<T>(all, {0, 1, 2}), without = decoding_with<T>(all, {});
        const auto chosen = stepwise_logits<T>(all.base, with.decoder, *with.cache, generator, {-1, -1, -1});
        const auto base = stepwise_logits<T>(all.base, without.decoder, *without.cache, again);
        BOOST_TEST(chosen.values() == base.values(), boost::test_tools::per_element());
      }
}

// Beside one with magnitudes, too.
BOOST_AUTO_TEST_CASE_TEMPLATE(an_adapter_without_magnitudes_has_its_bits, T, Scalars) {
  for (const ModelCase& c : model_cases()) BOOST_TEST_CONTEXT(c.name) {
      std::mt19937 generator(8), again(8);
      const SeveralAdapters some = SeveralAdapters::random<T>(c.config, {3, 4}, 30, {0, 2}),
                            none = SeveralAdapters::random<T>(c.config, {3, 4}, 30);
      auto with = decoding_with<T>(some, {0, 1, 2}), without = decoding_with<T>(none, {0, 1, 2});
      const auto found = stepwise_logits<T>(some.base, with.decoder, *with.cache, generator, {0, 1, 1}),
                 expected = stepwise_logits<T>(none.base, without.decoder, *without.cache, again, {0, 1, 1});
      bool differ = false;
      std::int64_t wrong = 0;
      for (std::int64_t r = 0; r < 12; ++r)
        for (std::int64_t v = 0; v < c.config.vocab_size; ++v) {
          differ = differ || (r < 4 && found(r, v) != expected(r, v));
          wrong += r >= 4 && found(r, v) != expected(r, v);
        }
      BOOST_TEST(differ);
      BOOST_TEST(wrong == 0, wrong << " logits differ");
    }
}

// The base of a model that learns adapters: the reference policy of a training.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_borrowing_decoder_computes_the_base_alone, T, Scalars) {
  std::mt19937 generator(9);
  for (const ModelCase& c : model_cases())
    for (const auto& scaled : {scalings[0], scalings[1]}) {
      const SeveralAdapters all = SeveralAdapters::random<T>(c.config, {3, 4}, 40, scaled);
      Borrowing<T> run(all.adapted[0]);
      const std::vector<std::int32_t> adapters{-1, 0, -1};
      check_close<T>(c.name, stepwise_logits<T>(all.base, *run.decoder, *run.cache, generator, adapters),
                     all.reference<T>(adapters));
    }
}

BOOST_AUTO_TEST_CASE(a_batch_with_adapters_is_its_sequences_one_by_one) {
  for (const auto& scaled : scalings) {
    const SeveralAdapters all = SeveralAdapters::random<double>(small_model(), {5, 12}, 50, scaled);
    // Equal beginnings, whose keys and values differ.
    const auto part = [&](int from, int to) {
      return std::vector(all.base.ids.begin() + from, all.base.ids.begin() + to);
    };
    const std::vector<std::vector<std::int32_t>> prompts{part(0, 9), part(0, 9), part(0, 9), part(0, 7),
                                                         part(0, 8)};
    const std::vector<std::int32_t> adapters{0, 1, -1, 0, 1};
    auto together = decoding_with<double>(all, {0, 1}, {}, 40);
    GeneratorOptions options{
        .batch = 5, .max_new_tokens = 8, .prefill_chunk = 4, .sampling = {.temperature = 0}};
    Generator<Exec, double> generator(together.decoder, *together.cache, options, *together.ledger);
    generator.start(Exec(), prompts, {}, adapters);
    while (generator.running()) generator.step(Exec());
    // Sequences 3 and 4 share what 0 and 1 have computed.
    BOOST_TEST(generator.computed_tokens() == 3 * 8 + 5 * 8);
    std::set<std::vector<std::int32_t>> different;
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      const std::int32_t k = adapters[s];
      auto alone =
          decoding_with<double>(all, k < 0 ? std::vector<std::size_t>{} : std::vector{std::size_t(k)}, {}, 40);
      options.batch = 1;
      Generator<Exec, double> one(alone.decoder, *alone.cache, options, *alone.ledger);
      one.start(Exec(), {prompts[s]});
      while (one.running()) one.step(Exec());
      const GeneratedSequence &found = generator.sequences()[s], &expected = one.sequences()[0];
      BOOST_TEST(found.tokens == expected.tokens, boost::test_tools::per_element());
      for (std::size_t i = prompts[s].size(); i < found.tokens.size(); ++i)
        BOOST_TEST(std::abs(found.log_probabilities[i] - expected.log_probabilities[i]) < 1e-10);
      BOOST_TEST(found.adapter == k);
      BOOST_TEST(expected.adapter == (k < 0 ? -1 : 0));
      if (s < 3) different.insert({found.tokens.begin() + 9, found.tokens.end()});
    }
    BOOST_TEST(different.size() == 3u);  // the adapters are large enough to be seen
  }
}

BOOST_AUTO_TEST_CASE(an_adapter_that_does_not_exist_is_refused) {
  const SeveralAdapters all = SeveralAdapters::random<float>(small_model(), {3, 4}, 60);
  auto run = decoding_with<float>(all, {0, 1});
  for (const std::int32_t wrong : {2, -2, 2147483647}) {
    run.cache = KvCache<Exec, float>::create(
        all.base.config, {.num_layers = 3, .batch = 3, .capacity = 4, .max_step_tokens = 4}, *run.ledger);
    std::mt19937 generator(10);
    const auto logits = stepwise_logits<float>(all.base, run.decoder, *run.cache, generator, {0, wrong, -1});
    for (std::int64_t r = 0; r < 12; ++r) BOOST_TEST(std::isnan(logits(r, 0)) == (r / 4 == 1));
  }
  Generator<Exec, float> generator(run.decoder, *run.cache, {.batch = 3, .prefill_chunk = 4}, *run.ledger);
  const std::vector<std::vector<std::int32_t>> prompts{{1, 2}, {3}, {4}};
  const std::string start = "kformer::Generator::start: ";
  check_error<NotSupported>(
      [&] { generator.start(Exec(), prompts, {}, {0, 2, -1}); },
      start + "prompt 1 has adapter 2, the decoder has 2; they count from 0, and -1 is none");
  check_error<NotSupported>(
      [&] { generator.start(Exec(), prompts, {}, {0, 1, -2}); },
      start + "prompt 2 has adapter -2, the decoder has 2; they count from 0, and -1 is none");
  check_error<DimensionMismatch>([&] { generator.start(Exec(), prompts, {}, {0, 1}); },
                                 start + "2 adapters, expected 3, one for each prompt");
  const std::vector<std::vector<std::int32_t>> fewer{{1, 2}, {3}};
  check_error<DimensionMismatch>([&] { generator.start(Exec(), fewer, {}, {0, 1, -1}); },
                                 start + "3 adapters, expected 2, one for each prompt");
  generator.start(Exec(), fewer, {}, {0, 1});
  BOOST_TEST(generator.sequences().at(1).adapter == 1);
  check_error<NotSupported>(
      [&] { generator.start(Exec(), prompts); },
      start + "the decoder has 2 adapters; give the number of one for each prompt, or -1 for none");
  const TestTensor<Exec, std::int32_t> one({1}), two({2});
  check_error<NotSupported>(
      [&] { run.decoder.step(Exec(), one.view<1>(), one.view<1>(), *run.cache); },
      "kformer::LlamaDecoder::step: there are 2 adapters; say which of them each token has, "
      "or -1");
  check_error<DimensionMismatch>(
      [&] { run.decoder.step(Exec(), one.view<1>(), one.view<1>(), *run.cache, two.view<1>()); },
      "kformer::LlamaDecoder::step: extents do not match: adapters[2]; expected adapters[1]");
  for (const std::int64_t k : {-1, 2})
    check_error<NotSupported>([&] { run.decoder.adapters(k); },
                              "kformer::LlamaDecoder::adapters: there is no adapter " + std::to_string(k) +
                                  " among the 2 of the decoder");
  check_error<NotSupported>(
      [&] { LlamaDecoder<Exec, float>(small_model(), {.adapters = {mixed(), LoraConfig()}}, *run.ledger); },
      "kformer::DecoderOptions: adapter 1 has no projection; tokens without an adapter have the number -1");
  // A decoder without adapters takes the choice of none.
  auto plain = decoding_with<float>(all, {});
  Generator<Exec, float> base(plain.decoder, *plain.cache, {.batch = 3, .prefill_chunk = 4}, *plain.ledger);
  base.start(Exec(), prompts, {}, {-1, -1, -1});
  check_error<NotSupported>(
      [&] { base.start(Exec(), prompts, {}, {-1, -1, 0}); },
      start + "prompt 2 has adapter 0, the decoder has 0; they count from 0, and -1 is none");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(adapters_are_booked, T, Scalars) {
  for (const auto& adapters : {std::vector<LoraConfig>{mixed(), LoraConfig::all(4, 8), only(Projection::o)},
                               {scaled(mixed()), LoraConfig::all(4, 8), scaled(only(Projection::o))},
                               {scaled(LoraConfig::all(4, 8))}})
    for (const ModelCase& c : model_cases()) BOOST_TEST_CONTEXT(c.name) {
        const auto make = [&](const std::shared_ptr<Ledger>& ledger) {
          LlamaDecoder<Exec, T> decoder(
              c.config, {.max_rows = 8, .max_logit_rows = 2, .max_positions = 32, .adapters = adapters},
              *ledger);
          const auto cache = KvCache<Exec, T>::create(
              c.config, {.num_layers = c.config.num_hidden_layers, .capacity = 32, .max_step_tokens = 8},
              *ledger);
          const Generator<Exec, T> generator(decoder, *cache, {.prefill_chunk = 8}, *ledger);
        };
        make(Ledger::create());  // the space's own scratch memory is set up now
        check_booked_memory(make);
        const auto with = Ledger::create(Ledger::Mode::count), without = Ledger::create(Ledger::Mode::count);
        const LlamaDecoder<Exec, T> adapted(c.config, {.adapters = adapters}, *with),
            plain(c.config, {}, *without);
        const std::size_t more = with->current(MemoryClass::weights) - without->current(MemoryClass::weights);
        std::size_t numbers = 0;
        for (const LoraConfig& lora : adapters)
          numbers += static_cast<std::size_t>(adapter_parameter_count(c.config, lora));
        BOOST_TEST(more >= numbers * sizeof(T));
        // Magnitudes have room for all rows of a fused weight.
        const auto padding = static_cast<std::size_t>(c.config.num_hidden_layers) * 14 * 64;
        const auto rows = static_cast<std::size_t>(c.config.num_hidden_layers * c.config.qkv_size());
        BOOST_TEST(more <= numbers * sizeof(T) + padding + rows * sizeof(T));
        // Steps read gains, not magnitudes.
        std::size_t magnitudes = 0;
        for (const LoraConfig& lora : adapters) {
          LoraConfig plain = lora;
          plain.magnitudes = false;
          magnitudes += static_cast<std::size_t>(adapter_parameter_count(c.config, lora) -
                                                 adapter_parameter_count(c.config, plain));
        }
        const std::size_t read = adapted.weight_bytes() - plain.weight_bytes(),
                          matrices = (numbers - magnitudes) * sizeof(T) + magnitudes * sizeof(compute_t<T>);
        BOOST_TEST(read >= matrices);
        BOOST_TEST(read <= matrices + padding + rows * sizeof(compute_t<T>));
        if (magnitudes == 0) BOOST_TEST(read == more);
      }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
