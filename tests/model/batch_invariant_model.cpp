// SPDX-License-Identifier: MIT
// The log-probabilities of training and of generation have the same bits, whatever is computed beside a sequence.
#include <algorithm>
#include <cmath>
#include <set>

#include "model/decoder_adapters.hpp"
#include "model/generation.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

constexpr std::int64_t length = 70;

/// A model whose tokens make several tiles of rows, and whose sums several steps.
std::vector<LlamaConfig> configurations() {
  const LlamaConfig base{.hidden_size = 264,
                         .intermediate_size = 300,
                         .num_attention_heads = 6,
                         .num_key_value_heads = 2,
                         .head_dim = 32,
                         .num_hidden_layers = 2,
                         .vocab_size = 101};
  LlamaConfig window = base, biased = base, normed = base;
  window.sliding_window = 20;
  biased.attention_bias = biased.tie_word_embeddings = true;
  normed.qk_norm = true;
  return {base, window, biased, normed};
}

/// The tokens of a sequence.
std::vector<std::int32_t> text_of(const ModelInputs& inputs, std::size_t sequence) {
  const auto first = inputs.ids.begin() + static_cast<std::ptrdiff_t>(sequence * length);
  return {first, first + length};
}

/// A model in training, as a program would use it.
template <class T>
struct Training {
  using C = compute_t<T>;
  std::shared_ptr<Ledger> ledger = Ledger::create();
  LayerShape shape;
  LlamaModel<Exec, T> model;

  Training(const ModelInputs& weights, LayerShape shape, bool packed = false, const LoraConfig& lora = {},
           const WeightFormats& formats = {})
      : shape(shape),
        model(weights.config, shape,
              {.batch_invariant = true, .packed = packed, .lora = lora, .formats = formats}, *ledger) {
    for (const WeightSlot& slot : model.weights()) Decoding<T>::write(slot, weights.weights.at(slot.name));
    model.prepare(Exec());
  }

  /// Minus the losses of all rows but the last of each sequence, where each token has the next one as target.
  std::vector<double> log_probabilities(const std::vector<std::int32_t>& ids,
                                        const std::vector<std::int32_t>& lengths = {}) {
    TestTensor<Exec, std::int32_t> tokens({shape.rows()}), targets({shape.rows()});
    tokens.fill([&](std::size_t i) { return ids[i]; });
    targets.fill([&](std::size_t i) { return i + 1 < ids.size() ? ids[i + 1] : 0; });
    PackedTokens<typename Exec::memory_space> packed;
    TestTensor<Exec, std::int32_t> starts({std::ssize(lengths) + 1}), positions({shape.rows()});
    if (!lengths.empty()) {
      std::vector<std::int32_t> begins{0}, places;
      for (const std::int32_t n : lengths) {
        begins.push_back(begins.back() + n);
        for (std::int32_t i = 0; i < n; ++i) places.push_back(i);
      }
      starts.fill([&](std::size_t i) { return begins[i]; });
      positions.fill([&](std::size_t i) { return places[i]; });
      packed = {starts.template view<1>(), positions.template view<1>()};
    }
    TestTensor<Exec, C> loss({shape.rows()});
    model.forward(Exec(), tokens.template view<1>(), packed);
    model.loss(Exec(), targets.template view<1>(), loss.template view<1>());
    Exec().fence("kformer::Testing::batch_invariant_model");
    std::vector<double> all = loss.template read<double>().values();
    for (double& x : all) x = -x;
    return all;
  }
};

/// The log-probabilities of texts but for their first tokens, as `Generator` scores them.
template <class T>
std::vector<GeneratedSequence> scored(LlamaDecoder<Exec, T>& decoder, KvCache<Exec, T>& cache, Ledger& ledger,
                                      const Prompts& texts, std::int64_t chunk, bool share_prefix,
                                      const std::vector<std::int32_t>& adapters = {}) {
  Generator<Exec, T> generator(decoder, cache,
                               {.batch = std::ssize(texts),
                                .max_new_tokens = 1,
                                .prefill_chunk = chunk,
                                .share_prefix = share_prefix,
                                .score_prompt = true,
                                .sampling = {.temperature = 0}},
                               ledger);
  generator.start(Exec(), texts, {}, adapters);
  while (generator.running()) generator.step(Exec());
  return generator.sequences();
}

template <class T>
std::vector<GeneratedSequence> scored(Decoding<T>& run, const Prompts& texts, std::int64_t chunk,
                                      bool share_prefix, const std::vector<std::int32_t>& adapters = {}) {
  return scored(run.decoder, *run.cache, *run.ledger, texts, chunk, share_prefix, adapters);
}

/// The same by a decoder that borrows the model of a training.
template <class T>
std::vector<GeneratedSequence> scored(const Training<T>& training, const DecoderOptions& options,
                                      KvCacheOptions kept, const Prompts& texts, std::int64_t chunk,
                                      bool share_prefix) {
  LlamaDecoder<Exec, T> decoder(training.model, options, *training.ledger);
  decoder.prepare(Exec());
  kept.num_layers = decoder.config().num_hidden_layers;
  kept.capacity = options.max_positions;
  kept.max_step_tokens = options.max_rows;
  const auto cache = KvCache<Exec, T>::create(decoder.config(), kept, *training.ledger);
  return scored(decoder, *cache, *training.ledger, texts, chunk, share_prefix);
}

/// Projections in one format, and a dense one in the middle of a fused weight.
WeightFormats all_but_v_in(const ModelInputs& weights, QuantizedFormat format) {
  WeightFormats formats;
  for (const auto& [name, t] : weights.weights)
    if (name.find("_proj.weight") != name.npos && name.find("v_proj") == name.npos) formats[name] = format;
  return formats;
}

/// A batch-invariant decoder for the scores of a batch.
DecoderOptions scoring(std::size_t batch, std::int64_t chunk, const WeightFormats& formats = {}) {
  return {.max_rows = std::max<std::int64_t>(chunk, static_cast<std::int64_t>(batch)),
          .max_logit_rows = 9,
          .max_positions = length + 1,
          .formats = formats,
          .batch_invariant = true};
}

/// Texts in a batch, by chunks of tokens, from a cache.
struct Scoring {
  std::size_t batch;
  std::int64_t chunk;
  KvCacheKind kind;
};

std::vector<Scoring> every_scoring() {
  std::vector<Scoring> all;
  for (const std::size_t batch : {1, 3, 8})
    for (const std::int64_t chunk : {1, 64, 70})
      for (const KvCacheKind kind : {KvCacheKind::contiguous, KvCacheKind::paged})
        all.push_back({batch, chunk, kind});
  return all;
}

/// For what reaches neither the batch nor the cache.
const std::vector<Scoring> some_scorings{{1, 1, KvCacheKind::contiguous},
                                         {1, 70, KvCacheKind::paged},
                                         {3, 64, KvCacheKind::paged},
                                         {8, 1, KvCacheKind::contiguous},
                                         {8, 70, KvCacheKind::contiguous}};

void check_bits(const std::vector<double>& found, std::size_t at, const std::vector<double>& expected,
                const std::string& what) {
  std::int64_t different = 0;
  for (std::size_t i = 1; i < expected.size(); ++i) different += found[at + i] != expected[i];
  BOOST_TEST(different == 0,
             what << ": " << different << " of " << expected.size() << " log-probabilities differ");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(batch_invariant_model)

BOOST_AUTO_TEST_CASE_TEMPLATE(training_and_generation_have_the_same_bits, T, Scalars) {
  std::vector<Scoring> scorings = every_scoring();
  for (const LlamaConfig& config : configurations()) {
    const ModelInputs weights = ModelInputs::random(config, {8, length}).template rounded<T>();
    const auto text = [&](std::size_t s) { return text_of(weights, s); };
    const std::vector<std::int32_t> chosen = text(0);
    // With a value for the first token, which has none.
    std::vector<double> expected = Training<T>(weights, {1, length}).log_probabilities(chosen);
    expected.insert(expected.begin(), 0);
    expected.pop_back();

    for (const auto& [batch, place] : {std::pair{3, 0}, {3, 2}, {8, 5}}) {
      std::vector<std::int32_t> ids;
      for (int s = 0; s < batch; ++s) {
        const auto one = s == place ? chosen : text(static_cast<std::size_t>(s % 7 + 1));
        ids.insert(ids.end(), one.begin(), one.end());
      }
      std::vector<double> found = Training<T>(weights, {batch, length}).log_probabilities(ids);
      found.insert(found.begin(), 0);
      check_bits(found, static_cast<std::size_t>(place) * length, expected,
                 "a batch of " + std::to_string(batch) + " in training");
    }
    // Behind another document, and in front of padding.
    std::vector<std::int32_t> row = text(1);
    row.resize(13);
    row.insert(row.end(), chosen.begin(), chosen.end());
    row.resize(length + 40, 0);
    std::vector<double> found = Training<T>(weights, {1, length + 40}, true)
                                    .log_probabilities(row, {13, static_cast<std::int32_t>(length), 27});
    found.insert(found.begin(), 0);
    check_bits(found, 13, expected, "a packed document");

    for (const auto& [batch, chunk, kind] : scorings) {
      Prompts texts(batch);
      for (std::size_t s = 0; s < batch; ++s) texts[s] = text(s % 7 + 1);
      texts[batch / 2] = chosen;
      Decoding<T> run(weights, scoring(batch, chunk),
                      {.kind = kind, .batch = std::ssize(texts), .page_tokens = 7});
      const auto sequences = scored(run, texts, chunk, batch == 3);
      check_bits(sequences[batch / 2].log_probabilities, 0, expected,
                 "a batch of " + std::to_string(batch) + " in generation, chunks of " + std::to_string(chunk) +
                     ", " + std::string(name_of(kind)));
    }
    scorings = some_scorings;
  }
}

// Tokens and their scores are the same in any batch; training scores them alike.
BOOST_AUTO_TEST_CASE_TEMPLATE(sampled_tokens, T, Scalars) {
  const ModelInputs weights = ModelInputs::random(configurations()[0], {4, length}).template rounded<T>();
  const auto generate = [&](std::int64_t batch, std::int64_t first) {
    Decoding<T> run(weights,
                    {.max_rows = 16, .max_logit_rows = batch, .max_positions = length, .batch_invariant = true},
                    {.batch = batch});
    Generator<Exec, T> generator(run.decoder, *run.cache,
                                 {.batch = batch,
                                  .max_new_tokens = 40,
                                  .prefill_chunk = 16,
                                  .sampling = {.temperature = 1.5, .seed = 5, .first_stream = first}},
                                 *run.ledger);
    Prompts prompts;
    for (std::int64_t s = 0; s < batch; ++s)
      prompts.push_back(
          {weights.ids.begin(), weights.ids.begin() + 5 + static_cast<std::ptrdiff_t>(first + s)});
    generator.start(Exec(), prompts);
    while (generator.running()) generator.step(Exec());
    return generator.sequences();
  };
  const auto together = generate(8, 0);
  std::set<std::vector<std::int32_t>> texts;
  for (std::int64_t s = 0; s < 8; ++s) {
    const GeneratedSequence &one = together[static_cast<std::size_t>(s)], alone = generate(1, s)[0];
    texts.insert(one.tokens);
    BOOST_TEST(alone.tokens == one.tokens, boost::test_tools::per_element());
    const auto tokens = std::ssize(one.tokens);
    const auto trained = Training<T>(weights, {1, tokens}).log_probabilities(one.tokens);
    std::int64_t different = 0;
    for (auto i = static_cast<std::size_t>(one.prompt_tokens); i < one.tokens.size(); ++i)
      different +=
          one.log_probabilities[i] != alone.log_probabilities[i] || one.log_probabilities[i] != trained[i - 1];
    BOOST_TEST(different == 0, "sequence " << s << ": " << different << " scores differ");
  }
  BOOST_TEST(texts.size() == 8, "all sequences differ");
}

// A model that trains with adapters, and a decoder that borrows them: what a policy samples with.
BOOST_AUTO_TEST_CASE_TEMPLATE(adapters, T, Scalars) {
  LoraConfig lora = LoraConfig::all(5, 8);
  lora[Projection::k].rank = lora[Projection::up].rank = 0;
  LoraConfig attention_alone;
  attention_alone[Projection::q] = attention_alone[Projection::v] = {.rank = 8, .alpha = 16};
  LoraConfig magnitudes = lora, some_magnitudes = attention_alone;
  magnitudes.magnitudes = some_magnitudes.magnitudes = true;
  const ModelInputs weights = ModelInputs::random(configurations()[2], {4, length}).template rounded<T>();
  const WeightFormats dense, q8_0 = all_but_v_in(weights, QuantizedFormat::q8_0),
                             nf4 = all_but_v_in(weights, QuantizedFormat::nf4);
  for (const auto& [config, formats] : {std::pair(lora, dense),
                                        {attention_alone, dense},
                                        {magnitudes, dense},
                                        {some_magnitudes, dense},
                                        {attention_alone, nf4},
                                        {magnitudes, q8_0}}) {
    Training<T> training(weights, {3, length}, false, config, formats);
    std::mt19937 generator(9);
    std::normal_distribution<double> normal;
    const auto learn = [&] {
      for (const Parameter& p : training.model.adapters()) {
        const bool vector = p.weight.rank == 1;
        HostTensor<double> values = vector ? HostTensor<double>({p.weight.extent[0]})
                                           : HostTensor<double>({p.weight.extent[0], p.weight.extent[1]});
        for (double& x : values.values())
          x = stored<T>(vector ? 1 + 0.2 * normal(generator) : 0.05 * normal(generator));
        write_parameter<T>(p.weight, values);
      }
    };
    learn();
    LlamaDecoder<Exec, T> decoder(
        training.model, {.max_rows = 16, .max_logit_rows = 3, .max_positions = length, .batch_invariant = true},
        *training.ledger);
    decoder.prepare(Exec());
    const auto cache = KvCache<Exec, T>::create(
        weights.config, {.num_layers = 2, .batch = 3, .capacity = length, .max_step_tokens = 16},
        *training.ledger);
    Generator<Exec, T> sampler(decoder, *cache,
                               {.batch = 3,
                                .max_new_tokens = length,
                                .prefill_chunk = 16,
                                .sampling = {.temperature = 2.5, .seed = 5}},
                               *training.ledger);
    std::vector<std::vector<std::int32_t>> texts;
    for (const std::int64_t stream : {0, 3}) {
      if (stream > 0) learn();
      sampler.draw_from(stream);
      sampler.start(Exec(), Prompts(3, {1, 2, 3, 4}));
      while (sampler.running()) sampler.step(Exec());
      std::vector<std::int32_t> ids;
      for (const GeneratedSequence& s : sampler.sequences()) {
        texts.push_back(s.tokens);
        ids.insert(ids.end(), s.tokens.begin(), s.tokens.end());
      }
      const std::vector<double> trained = training.log_probabilities(ids);
      std::int64_t different = 0;
      for (std::size_t s = 0; s < 3; ++s)
        for (std::size_t i = 4; i < static_cast<std::size_t>(length); ++i)
          different += sampler.sequences()[s].log_probabilities[i] !=
                       trained[s * static_cast<std::size_t>(length) + i - 1];
      BOOST_TEST(different == 0, different << " log-probabilities differ");
    }
    // The head is the embedding, so that some repeat a token for ever.
    BOOST_TEST(std::set(texts.begin(), texts.end()).size() >= 4u);
  }
}

// Sequences that choose among several adapters, of weights as they are and quantised ones: alone and token by token, and
// in a batch and chunks of many rows.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_choice_of_adapters, T, Scalars) {
  const SeveralAdapters all = SeveralAdapters::random<T>(configurations()[0], {8, length}, 70);
  Prompts texts;
  for (auto from = all.base.ids.begin(); from != all.base.ids.end(); from += length)
    texts.emplace_back(from, from + length);
  const std::vector<std::int32_t> choice{0, -1, 2, 1, 1, 0, 2, 0};
  for (const WeightFormats& formats :
       {WeightFormats(), all_in(all.base, QuantizedFormat::q8_0), all_in(all.base, QuantizedFormat::nf4)}) {
    const auto decoding = [&](std::size_t batch, std::int64_t chunk) {
      DecoderOptions options = scoring(batch, chunk, formats);
      options.adapters = all.configs;
      Decoding<T> run(all.base, options, {.batch = static_cast<std::int64_t>(batch)});
      write_adapters(run, all, {0, 1, 2});
      return run;
    };
    auto together = decoding(8, 64), alone = decoding(1, 1);
    const auto found = scored(together, texts, 64, false, choice);
    for (const std::size_t s : {0, 1, 2, 3})
      check_bits(found[s].log_probabilities, 0,
                 scored(alone, {texts[s]}, 1, false, {choice[s]})[0].log_probabilities,
                 "adapter " + std::to_string(choice[s]) + " in a batch, weights in " +
                     (formats.empty() ? "one type" : std::string(to_string(formats.begin()->second))));
  }
}

// Weights stay quantised beside adapters: a matrix that has one, ones without, and a dense one. Training of few rows, in
// batches and among documents, and generation by decoders that borrow the model or have weights of their own.
BOOST_AUTO_TEST_CASE_TEMPLATE(adapters_of_quantised_weights, T, Scalars) {
  LoraConfig lora = LoraConfig::all(5, 8);
  lora[Projection::k].rank = lora[Projection::up].rank = 0;
  const ModelInputs weights =
      ModelInputs::random(configurations()[1], {8, length}, 72, lora).template rounded<T>();
  const auto text = [&](std::size_t s) { return text_of(weights, s); };
  const std::vector<std::int32_t> chosen = text(0);
  const auto texts_of = [&](std::size_t batch, std::size_t place) {
    Prompts texts(batch);
    for (std::size_t s = 0; s < batch; ++s) texts[s] = text(s == place ? 0 : s % 7 + 1);
    return texts;
  };
  for (const QuantizedFormat format : quantized_formats) {
    // The other types share what is particular to a format.
    if (!std::is_same_v<T, float> && format != QuantizedFormat::q8_0 && format != QuantizedFormat::nf4)
      continue;
    const WeightFormats formats = all_but_v_in(weights, format);
    const auto training = [&](LayerShape shape, bool packed = false) {
      auto one = std::make_unique<Training<T>>(weights, shape, packed, lora, formats);
      for (const Parameter& p : one->model.adapters()) write_parameter<T>(p.weight, weights.weights.at(p.name));
      return one;
    };
    const auto check = [&](std::vector<double> found, std::size_t at, const std::vector<double>& expected,
                           const std::string& what) {
      check_bits(found, at, expected, what + ", weights in " + std::string(to_string(format)));
    };
    const auto alone = training({1, length});
    std::vector<double> expected = alone->log_probabilities(chosen);
    expected.insert(expected.begin(), 0);  // for the first token, which has none
    expected.pop_back();

    std::vector<double> few = training({1, 6})->log_probabilities({chosen.begin(), chosen.begin() + 6});
    few.insert(few.begin(), 0);
    check(few, 0, {expected.begin(), expected.begin() + 6}, "few rows in training");
    for (const auto& [batch, place] : {std::pair<std::size_t, std::size_t>{3, 2}, {8, 5}}) {
      std::vector<std::int32_t> ids;
      for (const auto& one : texts_of(batch, place)) ids.insert(ids.end(), one.begin(), one.end());
      std::vector<double> found = training({static_cast<std::int64_t>(batch), length})->log_probabilities(ids);
      found.insert(found.begin(), 0);
      check(found, place * length, expected, "a batch of " + std::to_string(batch) + " in training");
    }
    std::vector<std::int32_t> row = text(1);
    row.resize(13);
    row.insert(row.end(), chosen.begin(), chosen.end());
    row.resize(length + 40, 0);
    std::vector<double> found =
        training({1, length + 40}, true)->log_probabilities(row, {13, static_cast<std::int32_t>(length), 27});
    found.insert(found.begin(), 0);
    check(found, 13, expected, "a packed document");

    for (const auto& [batch, chunk, kind] : some_scorings) {
      const auto sequences = scored(*alone, scoring(batch, chunk),
                                    {.kind = kind, .batch = static_cast<std::int64_t>(batch), .page_tokens = 7},
                                    texts_of(batch, batch / 2), chunk, batch == 3);
      check(sequences[batch / 2].log_probabilities, 0, expected,
            "a batch of " + std::to_string(batch) + " in generation, chunks of " + std::to_string(chunk));
    }

    DecoderOptions options = scoring(3, 64, formats);
    options.adapters = {lora};
    Decoding<T> own(weights, options, {.batch = 3});
    for (const Parameter& p : own.decoder.adapters(0)) write_parameter<T>(p.weight, weights.weights.at(p.name));
    check(scored(own, texts_of(3, 1), 64, false)[1].log_probabilities, 0, expected,
          "a decoder with weights of its own");
  }
}

BOOST_AUTO_TEST_CASE(refusals) {
  const ModelInputs weights = some_inputs();
  for (const KvCacheKind kind : {KvCacheKind::int8, KvCacheKind::window, KvCacheKind::heavy_hitters}) {
    Decoding<float> run(weights, {.max_rows = 4, .max_positions = 30, .batch_invariant = true},
                        {.kind = kind, .window = 8, .budget = 8});
    Generator<Exec, float> generator(run.decoder, *run.cache, {.prefill_chunk = 4}, *run.ledger);
    check_error<NotSupported>(
        [&] {
          generator.start(Exec(), {{1, 2, 3}});
          generator.step(Exec());
        },
        "kformer::LlamaDecoder::step: a cache of kind " + std::string(name_of(kind)) +
            " is not batch-invariant, but DecoderOptions::batch_invariant was requested; choose contiguous or "
            "paged");
  }
  const auto ledger = Ledger::create();
  check_error<NotSupported>(
      [&] {
        LlamaModel<Exec, float>(small_model(), {1, 4},
                                {.attention = AttentionAlgorithm::standard, .batch_invariant = true}, *ledger);
      },
      "kformer::LlamaModel: standard attention is not batch-invariant: its products choose the order of a sum "
      "by their extents; choose AttentionAlgorithm::flash");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
