// SPDX-License-Identifier: MIT
// What a decoder and a generator do where names are wrong or the cache is full.
#include "model/generation.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

/// A generator with a cache of its own, which chooses the most probable tokens.
struct Generation {
  Decoding<double> run;
  Generator<Exec, double> generator;

  explicit Generation(const KvCacheOptions& kept, bool recompute = false)
      : run(some_inputs(), {.max_rows = 8, .max_logit_rows = 2, .max_positions = 64}, kept),
        generator(run.decoder, *run.cache,
                  {.batch = 2,
                   .max_new_tokens = 12,
                   .prefill_chunk = 4,
                   .recompute = recompute,
                   .sampling = {.temperature = 0}},
                  *run.ledger) {}

  const std::vector<GeneratedSequence>& generate(const Prompts& prompts) {
    generator.start(Exec(), prompts);
    while (generator.running()) generator.step(Exec());
    return generator.sequences();
  }
};

Prompts two_prompts(std::ptrdiff_t first, std::ptrdiff_t second) {
  const std::vector<std::int32_t> ids = some_inputs().ids;
  return {{ids.begin(), ids.begin() + first}, {ids.begin() + 20, ids.begin() + 20 + second}};
}

/// That `sequence` ended for its length, with the first `tokens` of another.
void check_beginning(const GeneratedSequence& sequence, const GeneratedSequence& whole, std::ptrdiff_t tokens) {
  const std::vector<std::int32_t> expected(whole.tokens.begin(), whole.tokens.begin() + tokens);
  BOOST_TEST(sequence.tokens == expected, boost::test_tools::per_element());
  BOOST_TEST(sequence.log_probabilities.size() == sequence.tokens.size());
  BOOST_TEST((sequence.stopped == StopReason::length));
}

/// Calls and bytes of all transfers.
std::pair<std::uint64_t, std::uint64_t> transferred(const Ledger& ledger) {
  std::pair<std::uint64_t, std::uint64_t> sum;
  for (const TransferCount& count : ledger.transfers()) {
    sum.first += count.transfers;
    sum.second += count.bytes;
  }
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generation_limits)

// Places in the cache, tokens, positions, rows with logits, and positions of the next tokens go to the device. Its
// tokens and their log-probabilities come back where the host does not reach them.
BOOST_AUTO_TEST_CASE(transfers_of_a_step_are_counted) {
  Generation run({.batch = 2});
  run.generator.start(Exec(), two_prompts(5, 7));
  const auto before = transferred(*run.run.ledger);
  run.generator.step(Exec());
  const auto after = transferred(*run.run.ledger);
  constexpr bool reached = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;
  BOOST_TEST(after.first - before.first == 5u + (reached ? 0u : 2u));
  BOOST_TEST(after.second - before.second ==
             2 * (5 * sizeof(std::int32_t) + (reached ? 0 : 4 + sizeof(double))));
}

BOOST_AUTO_TEST_CASE(a_format_names_a_matrix_of_the_model) {
  const auto ledger = Ledger::create();
  for (const ModelCase& c : model_cases()) {
    const std::string layers = std::to_string(c.config.num_hidden_layers);
    for (const std::string& name :
         {std::string("model.layers.0.self_attn.query.weight"), std::string("model.norm.weight"),
          "model.layers." + layers + ".mlp.down_proj.weight"})
      check_error<NotSupported>(
          [&] {
            DecoderOptions options;
            options.formats[name] = QuantizedFormat::q8_0;
            LlamaDecoder<Exec, float>(c.config, options, *ledger);
          },
          "kformer::DecoderOptions: formats: no matrix of the model is called " + name +
              "; use published names, such as model.layers.0.self_attn.q_proj.weight");
    // Values of a table cannot be multiplied with integers.
    const std::string name = "model.layers.0.mlp.down_proj.weight";
    check_error<NotSupported>(
        [&] {
          DecoderOptions options;
          options.formats[name] = QuantizedFormat::nf4;
          options.activations = Activations::int8;
          LlamaDecoder<Exec, float>(c.config, options, *ledger);
        },
        "kformer::DecoderOptions: activations are int8, but " + name +
            " is in NF4, whose weights are values of a table; use Activations::full");
    // The matrices of the model are all known.
    DecoderOptions options;
    for (const WeightSlot& slot : LlamaDecoder<Exec, float>(c.config, {}, *ledger).weights())
      if (slot.dense.rank == 2) options.formats[slot.name] = QuantizedFormat::q8_0;
    for (const WeightSlot& slot : LlamaDecoder<Exec, float>(c.config, options, *ledger).weights())
      BOOST_TEST(slot.is_quantized() == options.formats.contains(slot.name), slot.name);
  }
  BOOST_TEST(ledger->current_total() == 0u);
}

BOOST_AUTO_TEST_CASE(options_are_refused_by_the_constructors) {
  Generation run({.batch = 2});
  const auto refused = [](auto make, const std::string& sentence) {
    check_error<NotSupported>(make, "kformer::" + sentence);
  };
  refused(
      [&] {
        Generator<Exec, double>(run.run.decoder, *run.run.cache,
                                {.batch = 2, .prefill_chunk = 4, .sampling = {.temperature = -1}},
                                *run.run.ledger);
      },
      "Generator: temperature is -1.000000; it must be finite and not negative");
  const auto ledger = Ledger::create();
  LlamaConfig config = small_model();
  const std::string unnamed = " has the value 7, which its type does not name; choose one of: ";
  refused([&] { LlamaDecoder<Exec, float>(config, {.activations = static_cast<Activations>(7)}, *ledger); },
          "DecoderOptions: activations" + unnamed + "full, int8");
  refused([&] { LlamaDecoder<Exec, float>(config, {.compute = static_cast<Precision>(7)}, *ledger); },
          "DecoderOptions: compute" + unnamed + "storage, full");
  refused(
      [&] {
        KvCache<Exec, float>::create(config, {.kind = static_cast<KvCacheKind>(7), .capacity = 9}, *ledger);
      },
      "KvCache::create: kind" + unnamed + "contiguous, paged, window, int8, heavy_hitters, none");
  config.rope.theta = -1;
  refused([&] { LlamaDecoder<Exec, float>(config, {}, *ledger); },
          "LlamaDecoder: theta must be positive, got -1.000000");
  BOOST_TEST(ledger->current_total() == 0u);
}

BOOST_AUTO_TEST_CASE(a_sequence_ends_where_its_cache_is_full) {
  for (const KvCacheKind kind : {KvCacheKind::contiguous, KvCacheKind::paged, KvCacheKind::int8})
    for (const bool recompute : {false, true}) BOOST_TEST_CONTEXT(name_of(kind) << ", " << recompute) {
        KvCacheOptions kept{.kind = kind, .batch = 2, .page_tokens = 3};
        const auto whole = Generation(kept, recompute).generate(two_prompts(5, 2));
        kept.capacity = 9;
        Generation small(kept, recompute);
        const auto& sequences = small.generate(two_prompts(5, 2));
        // The last token does not enter the cache.
        for (std::size_t s = 0; s < 2; ++s) check_beginning(sequences[s], whole[s], 10);
        check_error<NotSupported>([&] { small.generator.final_logits(Exec()); },
                                  "kformer::KvCache::begin_step: sequence 0 would have 10 tokens, its capacity "
                                  "is 9; make the cache larger, truncate or reset the sequence (" +
                                      std::string(name_of(kind)) + " cache)");
        // A prompt that fills the cache has one token more.
        const auto& full = small.generate(two_prompts(9, 9));
        for (const GeneratedSequence& s : full) BOOST_TEST(s.new_tokens() == 1);
      }
}

BOOST_AUTO_TEST_CASE(sequences_end_where_no_page_is_free) {
  KvCacheOptions kept{.kind = KvCacheKind::paged, .batch = 2, .page_tokens = 3};
  const auto whole = Generation(kept).generate(two_prompts(5, 2));
  kept.pages = 4;
  for (const bool recompute : {false, true}) {
    Generation few(kept, recompute);
    const auto& sequences = few.generate(two_prompts(5, 2));
    // Three pages and a token; with recomputation the sequence that ended has left its page.
    check_beginning(sequences[0], whole[0], recompute ? 13 : 10);
    check_beginning(sequences[1], whole[1], 4);
  }
  // The common page of two equal prompts is copied once: both fit.
  Generation shared(kept);
  const std::vector<std::int32_t> prompt = two_prompts(9, 1)[0];
  const auto& sequences = shared.generate({prompt, prompt});
  for (const GeneratedSequence& s : sequences) BOOST_TEST(s.new_tokens() == 1);
}

BOOST_AUTO_TEST_CASE(a_cache_that_drops_tokens_is_never_full) {
  for (const KvCacheKind kind : {KvCacheKind::window, KvCacheKind::heavy_hitters}) {
    KvCacheOptions kept{.kind = kind,
                        .num_layers = small_model().num_hidden_layers,
                        .batch = 2,
                        .max_step_tokens = 8,
                        .sinks = 1,
                        .window = 3,
                        .budget = 4};
    Generation run({.batch = 2});
    const auto cache = KvCache<Exec, double>::create(small_model(), kept, *run.run.ledger);
    Generator<Exec, double> generator(run.run.decoder, *cache,
                                      {.batch = 2, .max_new_tokens = 40, .prefill_chunk = 4}, *run.run.ledger);
    generator.start(Exec(), two_prompts(5, 2));
    while (generator.running()) generator.step(Exec());
    for (const GeneratedSequence& s : generator.sequences()) BOOST_TEST(s.new_tokens() == 40);
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_that_does_not_fit_is_refused_at_the_start) {
  KvCacheOptions kept{.kind = KvCacheKind::paged, .batch = 2, .capacity = 9, .page_tokens = 3, .pages = 4};
  Generation run(kept);
  const auto refused = [&](const Prompts& prompts, const std::string& sentence) {
    check_error<DimensionMismatch>([&] { run.generator.start(Exec(), prompts); },
                                   "kformer::Generator::start: " + sentence);
    BOOST_TEST(!run.generator.running());
  };
  refused(two_prompts(2, 10), "prompt 1 has 10 tokens, the capacity of the cache is 9; make the cache larger");
  refused(two_prompts(9, 4),
          "prompt 1 has 4 tokens, the pages that other prompts leave in the cache hold fewer; make the cache "
          "with more pages");
  BOOST_TEST(run.generate(two_prompts(2, 2))[0].new_tokens() > 0);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
