// SPDX-License-Identifier: MIT
// Decoders that borrow the weights of a model.
#include <optional>

#include "kformer/model/generator.hpp"
#include "model/booked_memory.hpp"
#include "model/decoder_adapters.hpp"
#include "support/distance.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

std::vector<LoraConfig> adapters_of_all_kinds() {
  std::vector<LoraConfig> all{LoraConfig::all(4, 8), mixed(), only(Projection::o), only(Projection::up),
                              only(Projection::down)};
  for (std::size_t i = 0; i < 5; ++i) all.push_back(scaled(all[i]));
  all.emplace_back();
  return all;
}

/// The logits of a model itself.
template <class T>
HostTensor<oracle_t<T>> model_logits(LlamaModel<Exec, T>& model, const ModelInputs& inputs) {
  TestTensor<Exec, std::int32_t> ids({inputs.shape.rows()});
  ids.fill([&](std::size_t i) { return inputs.ids[i]; });
  TestTensor<Exec, T> logits({inputs.shape.rows(), inputs.config.vocab_size});
  model.prepare(Exec());
  model.forward(Exec(), ids.template view<1>());
  model.logits(Exec(), logits.template view<2>());
  Exec().fence("kformer::Testing::model_logits");
  return logits.template read<oracle_t<T>>();
}

std::vector<std::vector<std::int32_t>> some_prompts(const ModelInputs& inputs) {
  const auto part = [&](int from, int to) {
    return std::vector(inputs.ids.begin() + from, inputs.ids.begin() + to);
  };
  return {part(0, 7), part(3, 5), part(0, 4)};
}

template <class T>
std::vector<GeneratedSequence> greedy(LlamaDecoder<Exec, T>& decoder, KvCache<Exec, T>& cache, Ledger& ledger,
                                      const std::vector<std::vector<std::int32_t>>& prompts) {
  const auto batch = static_cast<std::int64_t>(prompts.size());
  Generator<Exec, T> generator(
      decoder, cache, {.batch = batch, .max_new_tokens = 8, .prefill_chunk = 4, .sampling = {.temperature = 0}},
      ledger);
  generator.start(Exec(), prompts);
  while (generator.running()) generator.step(Exec());
  return generator.sequences();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(borrowed_decoder)

BOOST_AUTO_TEST_CASE_TEMPLATE(a_borrowing_decoder_agrees_with_the_references, T, Scalars) {
  std::mt19937 generator(3);
  for (const ModelCase& c : model_cases())
    for (const LoraConfig& lora : adapters_of_all_kinds()) {
      const ModelInputs inputs = ModelInputs::random(c.config, c.shape, 4, lora).template rounded<T>();
      const auto expected = model_reference<naive_t<T>, T>(inputs).logits;
      const std::string name =
          std::string(c.name) + ", ranks of q and o " + std::to_string(lora[Projection::q].rank) + " and " +
          std::to_string(lora[Projection::o].rank) + (lora.magnitudes ? ", magnitudes" : "");
      Borrowing<T> run(inputs);
      check_close<T>(name, stepwise_logits<T>(inputs, *run.decoder, *run.cache, generator), expected);
      check_close<T>(name + ", the model", model_logits<T>(*run.model, inputs), expected);
    }
}

// Formats of all projections alike, and of some of a fused weight.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_model_lends_quantised_weights, T, Scalars) {
  std::mt19937 generator(12);
  for (const ModelCase& c : model_cases())
    for (const auto& [all, lora] : {std::pair(true, mixed()), {false, mixed()}, {false, scaled(mixed())}}) {
      const ModelInputs inputs = ModelInputs::random(c.config, c.shape, 13, lora).template rounded<T>();
      WeightFormats formats;
      for (const auto& [name, t] : inputs.weights)
        if (name.find("_proj.weight") != name.npos && (all || name.find("k_proj") == name.npos))
          formats[name] = QuantizedFormat::q8_0;
      Borrowing<T> run(inputs, LayerMode::training, 0, 0, formats);
      check_close<T>(c.name, stepwise_logits<T>(inputs, *run.decoder, *run.cache, generator),
                     model_reference<naive_t<T>, T>(dequantized(inputs, formats)).logits);
    }
}

// A step of training changes the arrays of the model: the next step of the decoder reads them.
BOOST_AUTO_TEST_CASE(a_step_computes_with_what_the_model_holds) {
  std::mt19937 generator(4);
  const ModelCase c = model_cases()[0];
  const ModelInputs first = ModelInputs::random(c.config, c.shape, 5, mixed());
  ModelInputs second = ModelInputs::random(c.config, c.shape, 6, mixed());
  second.ids = first.ids;
  Borrowing<double> run(first, LayerMode::training);
  for (const ModelInputs* now : {&first, static_cast<const ModelInputs*>(&second)}) {
    write(*run.model, *now);
    run.forget();
    check_close<double>("logits", stepwise_logits<double>(*now, *run.decoder, *run.cache, generator),
                        model_reference<naive_t<double>, double>(*now).logits);
  }
}

// Gains are those of weights and adapters at that time.
BOOST_AUTO_TEST_CASE(gains_follow_the_model) {
  std::mt19937 generator(14);
  const ModelCase c = model_cases()[0];
  const ModelInputs first = ModelInputs::random(c.config, c.shape, 15, scaled(mixed()));
  ModelInputs second = ModelInputs::random(c.config, c.shape, 16, scaled(mixed()));
  second.ids = first.ids;
  Borrowing<double> run(first, LayerMode::training);
  write(*run.model, second);
  run.decoder->update_gains(Exec());
  check_close<double>("logits", stepwise_logits<double>(second, *run.decoder, *run.cache, generator),
                      model_reference<naive_t<double>, double>(second).logits);
}

// To rounding, whatever the adapter.
BOOST_AUTO_TEST_CASE(a_live_adapter_has_the_logits_of_the_merged_model) {
  for (const ModelCase& c : model_cases())
    for (const LoraConfig& lora : adapters_of_all_kinds()) BOOST_TEST_CONTEXT(c.name) {
        std::mt19937 generator(17), again(17);
        const ModelInputs inputs = ModelInputs::random(c.config, c.shape, 18, lora);
        Borrowing<double> run(inputs);
        const auto live = stepwise_logits<double>(inputs, *run.decoder, *run.cache, generator);
        run.model->merge_adapters(Exec());
        run.decoder->update_gains(Exec());
        run.forget();
        const auto merged = stepwise_logits<double>(inputs, *run.decoder, *run.cache, again);
        check_near("logits", merged.values(), live.values(), 1e-12);
      }
}

BOOST_AUTO_TEST_CASE(a_live_adapter_generates_what_the_merged_model_does) {
  for (const ModelCase& c : model_cases())
    for (const LoraConfig& lora : {LoraConfig::all(4, 8), scaled(LoraConfig::all(4, 8))})
      BOOST_TEST_CONTEXT(c.name) {
        const ModelInputs inputs = ModelInputs::random(c.config, {1, 17}, 7, lora);
        Borrowing<double> run(inputs, LayerMode::inference, 40, 3);
        const auto prompts = some_prompts(inputs);
        const auto live = greedy(*run.decoder, *run.cache, *run.ledger, prompts);
        run.model->merge_adapters(Exec());
        run.forget();
        const auto merged = greedy(*run.decoder, *run.cache, *run.ledger, prompts);
        ModelInputs base = inputs;
        base.lora = {};
        Borrowing<double> plain(base, LayerMode::inference, 40, 3);
        const auto without = greedy(*plain.decoder, *plain.cache, *plain.ledger, prompts);
        bool differ = false;
        for (std::size_t s = 0; s < prompts.size(); ++s) {
          BOOST_TEST(live[s].tokens == merged[s].tokens, boost::test_tools::per_element());
          for (std::size_t i = prompts[s].size(); i < live[s].tokens.size(); ++i)
            BOOST_TEST(std::abs(live[s].log_probabilities[i] - merged[s].log_probabilities[i]) < 1e-10);
          differ = differ || live[s].tokens != without[s].tokens;
        }
        BOOST_TEST(differ);  // the adapter is large enough to be seen
      }
}

// The only weights of the decoder's own are the rotary tables.
BOOST_AUTO_TEST_CASE_TEMPLATE(nothing_is_stored_twice, T, Scalars) {
  for (const ModelCase& c : model_cases()) BOOST_TEST_CONTEXT(c.name) {
      const auto ledger = Ledger::create();
      const LlamaModel<Exec, T> model(c.config, c.shape, {.mode = LayerMode::inference, .lora = mixed()},
                                      *ledger);
      const auto weights = [&] { return ledger->current(MemoryClass::weights); };
      const auto all = [&] { return ledger->current_total(); };
      const LlamaModel<Exec, T> with_magnitudes(
          c.config, c.shape, {.mode = LayerMode::inference, .lora = scaled(mixed())}, *ledger);
      const std::size_t weights_before = weights(), before = all();
      const DecoderOptions options{.max_rows = 8, .max_logit_rows = 2, .max_positions = 32};
      const LlamaDecoder<Exec, T> decoder(model, options, *ledger);
      const auto half = static_cast<std::size_t>(c.config.head_dim / 2);
      BOOST_TEST(weights() - weights_before == 2 * 32 * half * sizeof(compute_t<T>));
      const std::size_t borrowed = all() - before;
      const LlamaDecoder<Exec, T> scaling(with_magnitudes, options, *ledger);
      BOOST_TEST(weights() - weights_before == 2 * 2 * 32 * half * sizeof(compute_t<T>));
      const auto other = Ledger::create();
      const LlamaDecoder<Exec, T> owner(c.config, options, *other);
      std::size_t parameters = 0, adapters = 0, embedding = 0;
      for (const Parameter& p : model.parameters()) parameters += static_cast<std::size_t>(p.weight.size());
      for (const Parameter& p : model.adapters()) adapters += static_cast<std::size_t>(p.weight.size());
      if (!c.config.tie_word_embeddings)
        embedding = static_cast<std::size_t>(c.config.vocab_size * c.config.hidden_size);
      BOOST_TEST(borrowed < other->current_total() - parameters * sizeof(T) + 8 * 13 * sizeof(T) + 64);
      const std::size_t read = (parameters + adapters - embedding) * sizeof(T);
      BOOST_TEST(decoder.weight_bytes() >= read);
      BOOST_TEST(decoder.weight_bytes() <=
                 read + static_cast<std::size_t>(c.config.num_hidden_layers) * 21 * 64);
    }
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_the_forecast) {
  for (const LoraConfig& lora : adapters_of_all_kinds())
    for (const ModelCase& c : model_cases()) {
      const auto make = [&](const std::shared_ptr<Ledger>& ledger) {
        const LlamaModel<Exec, float> model(c.config, c.shape, {.mode = LayerMode::training, .lora = lora},
                                            *ledger);
        const LlamaDecoder<Exec, float> decoder(
            model, {.max_rows = 8, .max_logit_rows = 2, .max_positions = 32}, *ledger);
      };
      make(Ledger::create());  // the space's own scratch memory is set up now
      check_booked_memory(make);
    }
}

BOOST_AUTO_TEST_CASE(a_model_may_be_moved_but_not_end) {
  std::mt19937 generator(5), again(5);
  const ModelCase c = model_cases()[0];
  const ModelInputs inputs = ModelInputs::random(c.config, c.shape, 8, mixed());
  Borrowing<double> run(inputs);
  const auto before = stepwise_logits<double>(inputs, *run.decoder, *run.cache, generator);
  std::optional<LlamaModel<Exec, double>> there(std::move(*run.model));
  run.forget();
  const auto after = stepwise_logits<double>(inputs, *run.decoder, *run.cache, again);
  BOOST_TEST(before.values() == after.values(), boost::test_tools::per_element());

  const DecoderOptions options{.max_rows = 4};
  check_error<NotSupported>(
      [&] { LlamaDecoder<Exec, double>(*run.model, options, *run.ledger); },
      "kformer::LlamaDecoder: the model was moved from and has no memory; use the one it was moved to");
  there.reset();
  const TestTensor<Exec, std::int32_t> one({1});
  const std::string gone =
      ": the model whose weights the decoder borrows does not exist any more; keep it as long as the decoder "
      "is used";
  check_error<NotSupported>([&] { run.decoder->prepare(Exec()); }, "kformer::LlamaDecoder::prepare" + gone);
  check_error<NotSupported>([&] { run.decoder->update_gains(Exec()); },
                            "kformer::LlamaDecoder::update_gains" + gone);
  check_error<NotSupported>([&] { run.decoder->weights(); }, "kformer::LlamaDecoder::weights" + gone);
  check_error<NotSupported>([&] { run.decoder->step(Exec(), one.view<1>(), one.view<1>(), *run.cache); },
                            "kformer::LlamaDecoder::step" + gone);
  check_error<NotSupported>([&] { run.decoder->logits(Exec(), one.view<1>()); },
                            "kformer::LlamaDecoder::logits" + gone);
}

BOOST_AUTO_TEST_CASE(what_a_decoder_cannot_borrow_is_refused) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const LlamaModel<Exec, float> encoder(small_model(), {1, 4}, {.causal = false}, *ledger),
      model(small_model(), {1, 4}, {}, *ledger);
  check_error<NotSupported>(
      [&] { LlamaDecoder<Exec, float>(encoder, {}, *ledger); },
      "kformer::LlamaDecoder: the model sees later tokens, which a decoder does not have; "
      "make it with LayerOptions::causal");
  DecoderOptions options;
  options.formats["model.embed_tokens.weight"] = QuantizedFormat::q8_0;
  for (const DecoderOptions& wrong : {options, DecoderOptions{.adapters = {mixed()}}})
    check_error<NotSupported>([&] { LlamaDecoder<Exec, float>(model, wrong, *ledger); },
                              "kformer::LlamaDecoder: the model has weights and adapters, which the decoder "
                              "borrows; give neither formats nor adapters");
  check_error<DimensionMismatch>([&] { LlamaDecoder<Exec, float>(model, {.max_rows = 0}, *ledger); },
                                 "kformer::DecoderOptions: max_rows must be positive, got 0");
}

// What a program writes into the slots of the decoder is in the model.
BOOST_AUTO_TEST_CASE(the_slots_are_the_arrays_of_the_model) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 4}, 9);
  Borrowing<float> run(inputs);
  const auto parameters = run.model->parameters();
  const auto slots = run.decoder->weights();
  BOOST_REQUIRE(slots.size() == parameters.size());
  for (const WeightSlot& slot : slots) {
    const auto same = std::ranges::find(parameters, slot.name, &Parameter::name);
    BOOST_REQUIRE((same != parameters.end()));
    BOOST_TEST(slot.dense.data == same->weight.data, slot.name);
    BOOST_TEST(slot.dense.same_extents(same->weight), slot.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
