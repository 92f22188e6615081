// SPDX-License-Identifier: MIT
// Adapters in the layout of PEFT: into models, in training, and back.
#include "kformer/io/adapter.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/model/generator.hpp"
#include "kformer/train/preference_loss.hpp"
#include "kformer/train/trainer.hpp"
#include "load/adapter_case.hpp"
#include "support/distance.hpp"
#include "support/errors.hpp"
#include "support/test_tensor.hpp"

namespace kformer::Testing {
namespace {

using Exec = KFORMER_TEST_SPACE;

constexpr std::int64_t batch = 2, tokens = 12, steps = 20;
constexpr const char* cases[] = {"adapter_case", "dora_case", "layers_case"};

struct Expected {
  explicit Expected(const char* name = "adapter_case")
      : file(SafetensorsFile::open(test_data(name) / "expected.safetensors")) {}

  SafetensorsFile file;
  std::vector<double> ids = file.read_f64("ids"), logits = file.read_f64("logits"),
                      losses = file.read_f64("losses");

  /// The sequences of a step; a target is the next token.
  std::vector<TokenSequence> sequences(std::int64_t step) const {
    std::vector<TokenSequence> all;
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto first = ids.begin() + (step % 4 * batch + b) * tokens;
      TokenSequence& s = all.emplace_back();
      for (std::int64_t t = 0; t < tokens; ++t) {
        s.ids.push_back(static_cast<std::int32_t>(first[t]));
        s.targets.push_back(t + 1 < tokens ? static_cast<std::int32_t>(first[t + 1]) : -100);
      }
      s.starts = {0};
    }
    return all;
  }
};

/// A trainer that continues from the adapter of the case.
struct Training {
  std::shared_ptr<Ledger> ledger = Ledger::create();
  AdapterCheckpoint adapter;
  LoraConfig lora = adapter.lora();
  Trainer<Exec, double> trainer;

  explicit Training(const char* name = "adapter_case", double dropout = 0, double rate = 1e-3)
      : adapter(AdapterCheckpoint::open(test_data(name))),
        trainer(llama_config(base().model()),
                {.shape = {batch, tokens},
                 .layer = {.lora = for_training(lora, dropout)},
                 .optimizer = {.weight_decay = 0.1},
                 .schedule = {.learning_rate = rate},
                 .dropout_seed = 11},
                *ledger) {
    load_weights(Exec(), base(), trainer.model(), *ledger);
    adapter.check_against(trainer.model().config());
    const auto adapters = trainer.model().adapters();
    load_adapter(Exec(), adapter, std::span(adapters), *ledger);
    trainer.prepare(Exec());
  }
  static LoraConfig for_training(LoraConfig lora, double dropout) {
    lora.learning_rate_ratio = 4;
    lora.dropout = dropout;
    return lora;
  }
};

/// The elements of an array in memory of the space.
std::vector<double> values_of(const TensorRef& array) {
  std::vector<double> values(static_cast<std::size_t>(array.size()));
  const Kokkos::View<const double*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> there(
      static_cast<const double*>(array.data), values.size());
  Kokkos::deep_copy(Kokkos::View<double*, Kokkos::HostSpace>(values.data(), values.size()), there);
  return values;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(adapter, AdapterFolder)

BOOST_AUTO_TEST_CASE(configuration_is_read) {
  const auto adapter = AdapterCheckpoint::open(folder);
  LoraConfig expected = LoraConfig::all(2, 3);
  expected.rank_stabilized = true;
  expected[Projection::q].alpha = 5;
  expected[Projection::v].alpha = 1;
  expected[Projection::down].rank = 3;
  BOOST_TEST((adapter.lora() == expected));
  BOOST_TEST(adapter.description().base_model == "inputs/tiny-llama");
  BOOST_TEST(adapter.lora().scale(Projection::q) == 5 / std::sqrt(2.0));
}

BOOST_AUTO_TEST_CASE(logits_are_those_of_peft) {
  for (const char* name : cases) BOOST_TEST_CONTEXT(name) {
      Training training(name);
      const Expected expected(name);
      training.trainer.forward(Exec(), expected.sequences(0));
      const std::int64_t words = training.trainer.model().config().vocab_size;
      std::vector<double> found;
      for (std::int64_t b = 0; b < batch; ++b) {
        const TestTensor<Exec, double> logits({1, words}, Rows::packed);
        training.trainer.model().logits(Exec(), b * tokens + tokens - 1, logits.view<2>());
        Exec().fence("kformer::Testing::adapter");
        const auto values = logits.read<double>().values();
        found.insert(found.end(), values.begin(), values.end());
      }
      check_near("logits", found, expected.logits, 1e-10);
    }
}

BOOST_AUTO_TEST_CASE(twenty_steps_are_those_of_peft) {
  for (const char* name : cases) BOOST_TEST_CONTEXT(name) {
      Training training(name);
      const Expected expected(name);
      std::vector<double> losses;
      for (std::int64_t step = 0; step < steps; ++step)
        losses.push_back(training.trainer.step(Exec(), expected.sequences(step)).loss);
      check_near("losses", losses, expected.losses, 1e-10);
      int compared = 0;
      for (const Parameter& p : training.trainer.model().adapters())
        if (expected.file.find("trained." + p.name) != nullptr) {
          check_near(p.name, values_of(p.weight), expected.file.read_f64("trained." + p.name), 1e-10);
          ++compared;
        }
      BOOST_TEST(compared == (training.lora.magnitudes ? 6 : 4));
    }
}

// Zeros of layers without an adapter, and of ranks that only other layers have, are none that learn.
BOOST_AUTO_TEST_CASE(what_a_layer_lacks_stays_zero) {
  Training training("layers_case");
  const Expected expected("layers_case");
  for (std::int64_t step = 0; step < 3; ++step)
    static_cast<void>(training.trainer.step(Exec(), expected.sequences(step)));
  const auto stored = SafetensorsFile::open(test_data("layers_case") / "adapter_model.safetensors");
  int absent = 0, lower = 0;
  for (const Parameter& p : training.trainer.model().adapters()) {
    const TensorEntry* const entry = stored.find(adapter_prefix + p.name);
    const auto values = values_of(p.weight);
    const auto zeros = std::ranges::count(values, 0.0);
    const std::size_t own = entry == nullptr ? 0 : entry->shape[0] * entry->shape[1];
    BOOST_TEST(zeros == std::ssize(values) - static_cast<std::int64_t>(own), p.name);
    absent += own == 0;
    lower += own != 0 && own < values.size();
  }
  BOOST_TEST(absent == 6);
  BOOST_TEST(lower == 4);
}

// With magnitudes, too: the weights become those of PEFT's merge.
BOOST_AUTO_TEST_CASE(merged_weights_compute_what_adapters_do) {
  for (const char* name : cases) BOOST_TEST_CONTEXT(name) {
      Training training(name);
      const auto sequences = Expected(name).sequences(1);
      const double loss = training.trainer.evaluate(Exec(), sequences);
      // Into a model without adapters, as generation does.
      const auto ledger = Ledger::create();
      const LlamaConfig config = training.trainer.model().config();
      Trainer<Exec, double> plain(config, {.shape = {batch, tokens}}, *ledger);
      load_weights(Exec(), base(), plain.model(), *ledger);
      std::vector<WeightSlot> slots;
      for (const Parameter& p : plain.model().parameters()) slots.push_back({p.name, p.weight, {}});
      const auto staging = ledger->allocate(Exec(), MemoryClass::io, "adapter",
                                            merge_staging_bytes(training.adapter, config, DType::f64));
      merge_adapter(Exec(), training.adapter, slots, staging, *ledger);
      plain.prepare(Exec());
      BOOST_TEST(std::abs(plain.evaluate(Exec(), sequences) - loss) < 1e-13 * loss);
      training.trainer.model().merge_adapters(Exec());
      const auto merged = training.trainer.model().parameters();
      for (std::size_t i = 0; i < slots.size(); ++i)
        BOOST_TEST(values_of(merged[i].weight) == values_of(slots[i].dense), merged[i].name);
    }
}

// At a rate that changes no weight, so that losses differ by their masks alone.
BOOST_AUTO_TEST_CASE(steps_have_dropout_and_evaluation_has_none) {
  Training plain("adapter_case", 0, 1e-300), dropped("adapter_case", 0.5, 1e-300);
  const auto sequences = Expected().sequences(0);
  const double first = dropped.trainer.step(Exec(), sequences).loss;
  BOOST_TEST(first != plain.trainer.step(Exec(), sequences).loss);
  BOOST_TEST(dropped.trainer.evaluate(Exec(), sequences) == plain.trainer.evaluate(Exec(), sequences));
  BOOST_TEST(first != dropped.trainer.step(Exec(), sequences).loss);
  dropped.trainer.restore({});
  BOOST_TEST(first == dropped.trainer.step(Exec(), sequences).loss);
}

// Between two others, whose matrices lie beside its own.
BOOST_AUTO_TEST_CASE(a_decoder_with_several_adapters_has_the_logits_of_peft) {
  const auto ledger = Ledger::create();
  const AdapterCheckpoint adapter = AdapterCheckpoint::open(adapter_case());
  const LlamaConfig config = llama_config(base().model());
  LlamaDecoder<Exec, double> decoder(
      config,
      {.max_rows = tokens,
       .max_logit_rows = batch,
       .max_positions = tokens,
       .adapters = {LoraConfig::all(3, 4), adapter.lora(), LoraConfig::all(1, 1)}},
      *ledger);
  load_weights(Exec(), base(), decoder, *ledger);
  for (const std::int64_t k : {0, 2})
    for (const Parameter& p : decoder.adapters(k))
      for (std::int64_t r = 0; r < p.weight.extent[0]; ++r) {
        const TensorRef row = Impl::rows_of(p.weight, r, 1);
        Kokkos::deep_copy(Kokkos::View<double*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                              static_cast<double*>(row.data), static_cast<std::size_t>(row.size())),
                          0.5);
      }
  load_adapter(Exec(), adapter, std::span<const Parameter>(decoder.adapters(1)), *ledger);
  decoder.prepare(Exec());
  const auto cache = KvCache<Exec, double>::create(
      config,
      {.num_layers = config.num_hidden_layers, .batch = batch, .capacity = tokens, .max_step_tokens = tokens},
      *ledger);
  Generator<Exec, double> generator(decoder, *cache,
                                    {.batch = batch, .max_new_tokens = 0, .prefill_chunk = tokens}, *ledger);
  const Expected expected;
  std::vector<std::vector<std::int32_t>> prompts;
  for (const TokenSequence& s : expected.sequences(0)) prompts.push_back(s.ids);
  generator.start(Exec(), prompts, {}, {1, 1});
  std::vector<double> found;
  for (const auto& logits : generator.final_logits(Exec()))
    found.insert(found.end(), logits.begin(), logits.end());
  check_near("logits", found, expected.logits, 1e-10);
}

// The reference of TRL's loss is the model with PEFT's adapter disabled.
BOOST_AUTO_TEST_CASE(ten_steps_of_preferences_are_those_of_trl) {
  constexpr std::int64_t pairs = 2;
  const SafetensorsFile file = SafetensorsFile::open(adapter_case() / "preferences.safetensors");
  const auto ids = file.read_f64("ids"), mask = file.read_f64("mask");
  // TRL's rows are the chosen completions, then the rejected ones.
  const auto sequence = [&](std::int64_t step, std::int64_t i) {
    const std::int64_t first = (step % 4 * 2 * pairs + i % 2 * pairs + i / 2) * tokens;
    TokenSequence s{.ids = {}, .targets = {}, .starts = {0}};
    for (std::int64_t t = first; t < first + tokens; ++t) {
      const auto next = static_cast<std::size_t>(t + 1);
      const bool learnt = t + 1 < first + tokens && mask[next] != 0;
      s.ids.push_back(static_cast<std::int32_t>(ids[static_cast<std::size_t>(t)]));
      s.targets.push_back(learnt ? static_cast<std::int32_t>(ids[next]) : -100);
    }
    return s;
  };
  Training training;
  std::vector<double> losses, margins;
  for (std::int64_t step = 0; step < 10; ++step) {
    std::vector<TokenSequence> sequences;
    for (std::int64_t i = 0; i < 2 * pairs; ++i) sequences.push_back(sequence(step, i));
    const LogProbabilities base = training.trainer.log_probabilities(Exec(), sequences, AdapterUse::off);
    std::vector<double> references;
    for (std::size_t i = 0; i < base.sequences(); ++i) references.push_back(base.sum(i));
    PreferenceObjective objective(references, {.beta = 0.3});
    losses.push_back(training.trainer.step(Exec(), sequences, std::ref(objective)).loss);
    margins.push_back(objective.result().margin);
  }
  check_near("losses", losses, file.read_f64("losses"), 1e-10);
  check_near("margins", margins, file.read_f64("margins"), 1e-10);
  int compared = 0;
  for (const Parameter& p : training.trainer.model().adapters())
    if (file.find("trained." + p.name) != nullptr) {
      check_near(p.name, values_of(p.weight), file.read_f64("trained." + p.name), 1e-10);
      ++compared;
    }
  BOOST_TEST(compared == 4);
}

BOOST_AUTO_TEST_CASE(an_adapter_is_written_and_read) {
  for (const char* name : cases) BOOST_TEST_CONTEXT(name) {
      Training training(name);
      const auto adapters = training.trainer.model().adapters();
      const fs::path copy = directory / (std::string("copy of ") + name);
      fs::create_directory(copy);
      LoraConfig lora = training.lora;
      lora.dropout = 0.25;
      save_adapter(Exec(), std::span(adapters), lora, {.base_model = "a \"base\""}, copy, *training.ledger);
      const auto read = AdapterCheckpoint::open(copy);
      BOOST_TEST((read.lora() == lora));
      BOOST_TEST(read.description().base_model == "a \"base\"");
      read.check_against(training.trainer.model().config());
      for (const Parameter& p : adapters) {
        const auto a = read.at(p.name).bytes, b = training.adapter.at(p.name).bytes;
        BOOST_TEST(std::equal(a.begin(), a.end(), b.begin(), b.end()), p.name);
      }
    }
}

// Other factors for each projection: s B is the same.
BOOST_AUTO_TEST_CASE(an_adapter_is_written_for_llama_cpp) {
  Training training;
  const LlamaConfig& config = training.trainer.model().config();
  const auto adapters = training.trainer.model().adapters();
  const fs::path file = directory / "adapter.gguf";
  save_gguf_adapter(Exec(), std::span(adapters), training.lora, config, file, *training.ledger);
  const auto read = AdapterCheckpoint::open(file, config);
  for (const Parameter& p : adapters)
    for (std::size_t i = 0; i < names_of<Projection>.size(); ++i) {
      if (p.name.find(names_of<Projection>[i]) == p.name.npos) continue;
      const auto projection = static_cast<Projection>(i);
      const bool is_b = p.name.find("lora_B") != p.name.npos;
      std::vector<double> found = read.values(p.name), expected = values_of(p.weight);
      for (double& x : found) x *= is_b ? read.lora().scale(projection) : 1;
      for (double& x : expected) x *= is_b ? training.lora.scale(projection) : 1;
      for (std::size_t n = 0; n < found.size(); ++n)
        BOOST_TEST(std::abs(found[n] - expected[n]) <= 2e-7 * std::abs(expected[n]));
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
