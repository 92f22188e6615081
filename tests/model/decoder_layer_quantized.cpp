// SPDX-License-Identifier: MIT
#include "kformer/model/decoder_layer.hpp"

#include <set>

#include "model/adapter_layers.hpp"
#include "model/booked_memory.hpp"
#include "model/small_layer.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

struct Case {
  std::string name;
  LlamaConfig config;
  LayerShape shape;
  LoraConfig lora;
  WeightFormats formats;
};

/// All projections in one format.
WeightFormats all_in(QuantizedFormat format) {
  WeightFormats formats;
  for (std::size_t p = 0; p < names_of<Projection>.size(); ++p)
    formats[projection_weight_name(static_cast<Projection>(p))] = format;
  return formats;
}

std::vector<Case> cases() {
  LlamaConfig biased = small_config(), normed = small_config();
  biased.attention_bias = true;
  normed.qk_norm = true;
  LoraConfig different = LoraConfig::all(3, 5);
  different[Projection::q] = {.rank = 7, .alpha = 2};
  different[Projection::v] = {.rank = 1, .alpha = 30};
  different[Projection::down] = {.rank = 0, .alpha = 4};
  std::vector<Case> all;
  for (const QuantizedFormat format : quantized_formats) {
    const std::string name = to_string(format);
    all.push_back({name + ", all", small_config(), {3, 7}, LoraConfig::all(4, 8), all_in(format)});
    all.push_back({name + ", other ranks and biases", biased, {2, 7}, different, all_in(format)});
  }
  // Frozen maps without an adapter.
  for (std::size_t p = 0; p < names_of<Projection>.size(); ++p)
    all.push_back({"NF4, " + std::string(names_of<Projection>[p]) + " alone",
                   small_config(),
                   {1, 5},
                   lora_on({static_cast<Projection>(p)}, {2, 6}),
                   all_in(QuantizedFormat::nf4)});
  all.push_back({"some of them, norms of heads",
                 normed,
                 {2, 7},
                 LoraConfig::all(2, 4),
                 {{"self_attn.q_proj.weight", QuantizedFormat::nf4},
                  {"self_attn.v_proj.weight", QuantizedFormat::q8_0},
                  {"mlp.up_proj.weight", QuantizedFormat::q4_0}}});
  all.push_back({"the others, biases",
                 biased,
                 {1, 33},
                 different,
                 {{"self_attn.k_proj.weight", QuantizedFormat::q4_1},
                  {"self_attn.o_proj.weight", QuantizedFormat::tq2_0},
                  {"mlp.gate_proj.weight", QuantizedFormat::nf4},
                  {"mlp.down_proj.weight", QuantizedFormat::q8_0}}});
  return all;
}

LayerInputs inputs_of(const Case& c, unsigned seed) {
  LayerInputs inputs = LayerInputs::random(c.config, c.shape, seed, c.lora);
  inputs.quantize(c.formats);
  return inputs;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(decoder_layer_quantized)

BOOST_AUTO_TEST_CASE(gradients_are_those_of_the_dense_layer) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) check_against_merged(inputs_of(c, 4));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_references, T, Scalars) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      const LayerInputs inputs = inputs_of(c, 3).template rounded<T>();
      check_layer<T>(inputs, AttentionAlgorithm::flash, inputs.template reference<naive_t<T>, T>());
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(recomputation_gives_the_same_bits, T, Scalars) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) check_recomputation<T>(inputs_of(c, 6));
}

// Weights that stay quantised take the bytes of their blocks, and have neither a dense copy nor gradients.
BOOST_AUTO_TEST_CASE_TEMPLATE(memory_is_that_of_the_blocks, T, Scalars) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      const LayerInputs inputs = inputs_of(c, 7);
      LayerUnderTest<T> run(inputs, AttentionAlgorithm::flash);
      run.forward();
      run.backward();
      std::size_t least = 0, arrays = 2;
      for (const Parameter& p : run.layer().parameters()) {
        BOOST_TEST(!p.gradient.present(), p.name);
        BOOST_TEST(!c.formats.contains(p.name), p.name);
        least += static_cast<std::size_t>(p.weight.size()) * sizeof(T), ++arrays;
      }
      for (const Parameter& p : run.layer().adapters())
        least += static_cast<std::size_t>(p.weight.size()) * sizeof(T), ++arrays;
      for (const WeightSlot& slot : run.layer().weights())
        if (slot.is_quantized()) {
          BOOST_TEST((slot.quantized.format == c.formats.at(slot.name)));
          least += quantized_bytes(slot.quantized.format, slot.quantized.rows, slot.quantized.cols), ++arrays;
        }
      const auto half = static_cast<std::size_t>(c.shape.seq_len * c.config.head_dim / 2);
      least += 2 * half * sizeof(compute_t<T>);  // rotary tables
      const std::size_t booked = run.ledger().peak(MemoryClass::weights);
      BOOST_TEST(booked >= least);
      BOOST_TEST(booked <= least + 64 * (arrays + 4));
      std::set<std::string> names;
      for (const WeightSlot& slot : run.layer().weights()) names.insert(slot.name);
      for (const auto& [name, extents] : parameter_extents(c.config)) BOOST_TEST(names.erase(name) == 1u, name);
      BOOST_TEST(names.empty());
    }
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_the_forecast) {
  for (const Case& c : cases())
    check_booked_memory([&](const std::shared_ptr<Ledger>& ledger) {
      for (const Recompute policy : policies)
        DecoderLayer<Exec, float>(c.config, c.shape,
                                  {.recompute = policy, .lora = c.lora, .formats = c.formats}, *ledger);
    });
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const auto make = [&](const LayerOptions& options) {
    return DecoderLayer<Exec, float>(small_config(), {1, 4}, options, *ledger);
  };
  const LoraConfig lora = LoraConfig::all(2, 4);
  check_error<NotSupported>(
      [&] { make({.formats = {{"mlp.up_proj.weight", QuantizedFormat::nf4}}}); },
      "kformer::DecoderLayer: mlp.up_proj.weight stays quantised, but quantised weights do not learn and there "
      "are no adapters; set `lora`, or expand the weights; LlamaDecoder generates with quantised ones");
  check_error<NotSupported>(
      [&] { make({.lora = lora, .formats = {{"self_attn.up_proj.weight", QuantizedFormat::nf4}}}); },
      "kformer::DecoderLayer: formats: 'self_attn.up_proj.weight' is no matrix of a layer; use names such as "
      "self_attn.q_proj.weight");
  auto layer = make({.lora = lora, .formats = {{"mlp.up_proj.weight", QuantizedFormat::nf4}}});
  check_error<NotSupported>(
      [&] { layer.merge_adapters(Exec()); },
      "kformer::DecoderLayer::merge_adapters: mlp.up_proj.weight stays quantised (NF4), "
      "so that its adapter cannot be added; keep the adapter, or load it into expanded weights");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
