// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "kformer/model/generator.hpp"
#include "kformer/model/llama_model.hpp"
#include "model/decoder_adapters.hpp"
#include "parallel/tensor_runs.hpp"
#include "support/errors.hpp"

// Ranks that divide a decoder generate what one does.
namespace kformer::Testing {
namespace {

constexpr LayerShape shape{2, 9};

DecoderOptions divided(const std::shared_ptr<Communicator>& ranks) {
  return {.max_rows = shape.rows(),
          .max_logit_rows = shape.rows(),
          .max_positions = 3 * shape.seq_len,
          .tensor = ranks};
}

/// Every kind of cache, and some that drop tokens.
std::vector<KvCacheOptions> caches() {
  return {{.kind = KvCacheKind::contiguous, .batch = 2},
          {.kind = KvCacheKind::paged, .batch = 2, .page_tokens = 3},
          {.kind = KvCacheKind::int8, .batch = 2},
          {.kind = KvCacheKind::window, .batch = 2, .sinks = 1, .window = 4},
          {.kind = KvCacheKind::heavy_hitters, .batch = 2, .budget = 5, .recent = 2}};
}

template <class T>
std::vector<double> logits_of(const ModelInputs& inputs, const DecoderOptions& options,
                              const KvCacheOptions& cache) {
  Decoding<T> run(inputs, options, cache);
  if (!options.adapters.empty())
    for (const Parameter& p : run.decoder.adapters(0))
      write_parameter<T>(p.weight, part_of_array(inputs.weights.at(p.name), p));
  std::mt19937 generator(7);  // of steps, the same on all ranks
  const auto logits = stepwise_logits<T>(inputs, run.decoder, *run.cache, generator);
  return {logits.values().begin(), logits.values().end()};
}

void check_close(const std::vector<double>& found, const std::vector<double>& expected,
                 const std::string& what) {
  const double worst = distance(found, expected);
  BOOST_TEST(worst <= 1e-12, what << ": " << worst);
}

/// Sequences that are sampled from two prompts with a common beginning.
template <class T>
std::vector<GeneratedSequence> generated(const ModelInputs& inputs, const std::shared_ptr<Communicator>& ranks,
                                         const SamplingOptions& sampling) {
  Decoding<T> run(inputs, divided(ranks), {.kind = KvCacheKind::paged, .batch = 2, .page_tokens = 3});
  Generator<Exec, T> generator(run.decoder, *run.cache,
                               {.batch = 2,
                                .max_new_tokens = 12,
                                .prefill_chunk = 4,
                                .score_prompt = true,
                                .sampling = sampling,
                                .repetition_window = 8},
                               *run.ledger);
  generator.start(Exec(), {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 9}});
  while (generator.running()) generator.step(Exec());
  return generator.sequences();
}

/// A model whose columns are whole blocks of 32 for any number of ranks.
LlamaConfig blocks_of_32(int ranks) {
  LlamaConfig config = model(kinds[0], ranks);
  config.hidden_size = 64;
  config.head_dim = 16;  // two query heads a rank
  config.intermediate_size = 32 * ranks;
  return config;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensor_decoder)

BOOST_AUTO_TEST_CASE(ranks_that_divide_a_decoder_compute_what_one_does) {
  const auto ranks = world();
  for (const Kind& kind : {kinds[0], kinds[1], kinds[2]}) {
    LlamaConfig config = model(kind, ranks->size());
    if (kind.qk_norm) config.sliding_window = 5;
    const ModelInputs inputs = ModelInputs::random(config, shape);
    for (const KvCacheOptions& cache : caches()) {
      const auto together = logits_of<double>(inputs, divided(ranks), cache);
      check_close(together, logits_of<double>(inputs, divided(nullptr), cache),
                  std::string(kind.name) + ", " + std::string(name_of(cache.kind)));
    }
  }
}

BOOST_AUTO_TEST_CASE(generation_is_that_of_one_rank) {
  const auto ranks = world();
  const ModelInputs inputs = ModelInputs::random(model(kinds[1], ranks->size()), shape);
  for (const SamplingOptions& sampling :
       {SamplingOptions{.temperature = 0},
        SamplingOptions{.temperature = 1.5, .top_k = 40, .repetition_penalty = 1.2}}) {
    const auto together = generated<double>(inputs, ranks, sampling),
               alone = generated<double>(inputs, nullptr, sampling);
    for (std::size_t s = 0; s < alone.size(); ++s) {
      BOOST_TEST(alone[s].new_tokens() == 12);
      BOOST_TEST(together[s].tokens == alone[s].tokens);
      for (std::size_t i = 1; i < alone[s].tokens.size(); ++i)
        BOOST_TEST(std::abs(together[s].log_probabilities[i] - alone[s].log_probabilities[i]) <= 1e-12);
    }
  }
}

// So that all choose the same token.
BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_agree_to_the_bit, T, Scalars) {
  const auto ranks = world();
  EqualOnAllRanks equal(ranks);
  const ModelInputs inputs = ModelInputs::random(model(kinds[2], ranks->size()), shape).template rounded<T>();
  for (const KvCacheOptions& cache : caches())
    equal.check(logits_of<T>(inputs, divided(ranks), cache), std::string(name_of(cache.kind)));
  for (const GeneratedSequence& s : generated<T>(inputs, ranks, {.temperature = 1})) {
    equal.check(std::vector<double>(s.tokens.begin(), s.tokens.end()), "tokens");
    equal.check(std::vector<double>(s.log_probabilities.begin() + 1, s.log_probabilities.end()),
                "log-probabilities");
  }
}

BOOST_AUTO_TEST_CASE(quantised_weights_are_divided_by_blocks) {
  const auto ranks = world();
  const LlamaConfig config = blocks_of_32(ranks->size());
  const ModelInputs inputs = ModelInputs::random(config, shape);
  for (const QuantizedFormat format : {QuantizedFormat::q8_0, QuantizedFormat::q4_1}) {
    DecoderOptions options = divided(ranks), whole = divided(nullptr);
    options.formats = whole.formats = all_in(inputs, format);
    check_close(logits_of<double>(inputs, options, {.batch = 2}),
                logits_of<double>(inputs, whole, {.batch = 2}), to_string(format));
  }
}

// Sequences of a batch that choose among several, some with magnitudes, and one without a choice.
BOOST_AUTO_TEST_CASE(adapters_are_divided) {
  const auto ranks = world();
  for (const std::set<std::size_t>& scaled : {std::set<std::size_t>{}, {0, 2}, {0, 1, 2}}) {
    const auto all = SeveralAdapters::random<double>(model(kinds[1], ranks->size()), {5, 4}, 10, scaled);
    const auto logits = [&](const std::shared_ptr<Communicator>& tensor, const std::vector<std::size_t>& which,
                            const std::vector<std::int32_t>& chosen) {
      auto run = decoding_with<double>(all, which, {}, 0, tensor);
      std::mt19937 generator(6);
      const auto found = stepwise_logits<double>(all.base, run.decoder, *run.cache, generator, chosen);
      return std::vector<double>(found.values().begin(), found.values().end());
    };
    const std::vector<std::int32_t> chosen{1, -1, 0, 2, 0};
    const std::string what = std::to_string(scaled.size()) + " with magnitudes";
    check_close(logits(ranks, {0, 1, 2}, chosen), logits(nullptr, {0, 1, 2}, chosen), what);
    for (const std::size_t one : {0, 1, 2})
      check_close(logits(ranks, {one}, {}), logits(nullptr, {one}, {}), what + ", " + std::to_string(one));
  }
}

// Sums over ranks have an order that depends on nothing else. With an adapter on quantised weights, too.
BOOST_AUTO_TEST_CASE_TEMPLATE(batch_invariant_logits_are_those_of_a_divided_model, T, Scalars) {
  const auto ranks = world();
  const auto check = [&](const LlamaConfig& config, const LoraConfig& lora) {
    const ModelInputs inputs = ModelInputs::random(config, shape, 5, lora).template rounded<T>();
    LayerOptions layer{.mode = LayerMode::inference, .batch_invariant = true, .lora = lora, .tensor = ranks};
    DecoderOptions options = divided(ranks);
    options.batch_invariant = true;
    if (lora.any()) {
      options.adapters = {lora};
      for (const auto& [name, t] : inputs.weights)
        if (name.ends_with("_proj.weight")) layer.formats[name] = QuantizedFormat::q8_0;
      options.formats = layer.formats;
    }
    const auto ledger = Ledger::create();
    LlamaModel<Exec, T> m(config, shape, layer, *ledger);
    for (const WeightSlot& slot : m.weights())
      Decoding<T>::write(slot, part_of_array(inputs.weights.at(slot.name), Decoding<T>::parameter_of(slot)));
    for (const Parameter& p : m.adapters())
      write_parameter<T>(p.weight, part_of_array(inputs.weights.at(p.name), p));
    m.prepare(Exec());
    m.forward(Exec(), on_device(inputs.ids));
    const Kokkos::View<T**, Kokkos::LayoutRight, Exec::memory_space> logits("logits", shape.rows(),
                                                                            config.vocab_size);
    m.logits(Exec(), logits);
    std::vector<double> expected;
    for (const T x : on_host(logits)) expected.push_back(static_cast<double>(static_cast<compute_t<T>>(x)));
    for (const KvCacheKind kind : {KvCacheKind::contiguous, KvCacheKind::paged})
      BOOST_TEST(logits_of<T>(inputs, options, {.kind = kind, .batch = 2, .page_tokens = 3}) == expected);
  };
  check(model(kinds[1], ranks->size()), {});
  check(blocks_of_32(ranks->size()), LoraConfig::all(3, 5));
}

// To the byte, by class; and a rank has its share of the weights and of the keys.
BOOST_AUTO_TEST_CASE(forecasts_are_what_ranks_need) {
  const auto ranks = world();
  const LlamaConfig config = model(kinds[0], ranks->size());
  const auto built = [&](const std::shared_ptr<Communicator>& tensor, Ledger& ledger) {
    const LlamaDecoder<Exec, bf16> decoder(config, divided(tensor), ledger);
    KvCache<Exec, bf16>::create(decoder.config(), {.num_layers = config.num_hidden_layers, .capacity = 16},
                                ledger);
    std::int64_t elements = 0;
    for (const WeightSlot& slot : decoder.weights())
      if (slot.slice.divides()) elements += slot.dense.size();
    return static_cast<double>(elements);
  };
  const auto used = Ledger::create(), forecast = Ledger::create(Ledger::Mode::count),
             whole = Ledger::create(Ledger::Mode::count);
  const double own = built(ranks, *used);
  BOOST_TEST(built(std::make_shared<LoneCommunicator>(ranks->rank(), ranks->size()), *forecast) == own);
  built(nullptr, *whole);
  for (int c = 0; c < memory_classes; ++c) {
    const auto memory_class = static_cast<MemoryClass>(c);
    BOOST_TEST(forecast->peak(memory_class) == used->peak(memory_class), to_string(memory_class));
  }
  BOOST_TEST(used->peak(MemoryClass::kv_cache) * static_cast<std::size_t>(ranks->size()) ==
             whole->peak(MemoryClass::kv_cache));
  if (ranks->size() == 1) return;
  const std::int64_t norms = (2 * config.num_hidden_layers + 1) * config.hidden_size;
  Collectives<Exec> all(ranks, {}, *used);
  const std::vector<double> parts = all.gather_values(Exec(), std::span(&own, 1));
  BOOST_TEST(std::accumulate(parts.begin(), parts.end(), 0.0) ==
             static_cast<double>(config.model_parameter_count() - norms));
}

// Sums behind the embedding and twice a layer; logits in parts of equal size.
BOOST_AUTO_TEST_CASE(bytes_are_those_of_the_formula) {
  const auto ranks = world();
  if (ranks->size() == 1) return;
  const ModelInputs inputs = ModelInputs::random(model(kinds[0], ranks->size()), {1, shape.seq_len});
  Decoding<double> run(inputs, divided(ranks), {});
  const std::vector<std::int64_t> fresh{shape.seq_len};
  std::vector<std::int32_t> positions(static_cast<std::size_t>(shape.seq_len));
  std::iota(positions.begin(), positions.end(), 0);
  run.cache->begin_step(Exec(), fresh);
  run.decoder.step(Exec(), on_device(inputs.ids), on_device(positions), *run.cache);
  run.cache->end_step(Exec());
  run.decoder.logits(Exec(), on_device(std::vector<std::int32_t>{1, 7}));
  std::map<std::string, std::uint64_t> sent, calls;
  for (const auto& entry : ranks->log().counts()) {
    sent[std::string(entry.operation)] += entry.bytes;
    calls[std::string(entry.operation)] += entry.calls;
  }
  const std::int64_t n = ranks->size(), elements = shape.seq_len * inputs.config.hidden_size;
  const std::int64_t each = (elements + n - 1) / n;
  const std::int64_t own = std::min(each, std::max<std::int64_t>(0, elements - ranks->rank() * each));
  const std::int64_t sums = 2 * inputs.config.num_hidden_layers + 1;
  BOOST_TEST(calls.at("all_reduce") == static_cast<std::uint64_t>(sums));
  BOOST_TEST(sent.at("all_reduce") == static_cast<std::uint64_t>(sums * 8 * (elements - own + (n - 1) * own)));
  BOOST_TEST(sent.at("all_gather") ==
             static_cast<std::uint64_t>((n - 1) * 2 * 8 * ((inputs.config.vocab_size + n - 1) / n)));
  BOOST_TEST(sent.size() == 2u);
}

BOOST_AUTO_TEST_CASE(what_ranks_do_not_divide_is_refused) {
  const auto check_refused = [](const LlamaConfig& config, DecoderOptions options, const std::string& text) {
    options.tensor = std::make_shared<LoneCommunicator>(1, 3);
    const auto ledger = Ledger::create(Ledger::Mode::count);
    check_error<NotSupported>([&] { LlamaDecoder<Exec, float>(config, options, *ledger); },
                              "kformer::LlamaDecoder: " + text);
    BOOST_TEST(ledger->peak_total() == 0u);
  };
  LlamaConfig config = model(kinds[0], 3);
  config.num_attention_heads = config.num_key_value_heads = 4;
  check_refused(config, {},
                "3 ranks (tensor) do not divide num_attention_heads 4; take a number of ranks that does");
  config = model(kinds[0], 3);
  config.vocab_size = 2;
  check_refused(config, {}, "3 ranks (tensor) do not divide vocab_size 2; take fewer");
  config = blocks_of_32(3);
  config.intermediate_size = 48;
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  check_refused(config, {.formats = {{down, QuantizedFormat::q8_0}}},
                down +
                    " stays quantised (Q8_0) in blocks that ranks (tensor) would divide; expand it, or take "
                    "another number of ranks");
  check_refused(blocks_of_32(3), {.formats = {{down, QuantizedFormat::nf4}}},
                down + " stays quantised (NF4) in blocks that ranks (tensor) would divide; expand it");
  config = blocks_of_32(3);
  config.intermediate_size = 3 * 256;
  check_refused(config, {.formats = {{down, QuantizedFormat::tq2_0}}, .activations = Activations::int8},
                "activations are int8, but " + down +
                    " is in TQ2_0, for which each row of them has one scale, which ranks (tensor) would "
                    "divide; use Activations::full");
  const auto ledger = Ledger::create(Ledger::Mode::count);
  // Rows of weights are divided whatever the activations.
  for (const Activations activations : {Activations::full, Activations::int8})
    BOOST_CHECK_NO_THROW((
        LlamaDecoder<Exec, float>(config,
                                  {.formats = {{"model.layers.0.mlp.gate_proj.weight", QuantizedFormat::tq2_0}},
                                   .activations = activations,
                                   .tensor = std::make_shared<LoneCommunicator>(1, 3)},
                                  *ledger)));
  const LlamaModel<Exec, float> whole(config, {1, 4}, {.mode = LayerMode::inference}, *ledger);
  check_error<NotSupported>(
      [&] { LlamaDecoder<Exec, float>(whole, {.tensor = std::make_shared<LoneCommunicator>(1, 3)}, *ledger); },
      "kformer::LlamaDecoder: the model is not divided among ranks, and a decoder borrows it as it is; leave "
      "out "
      "`tensor`");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
