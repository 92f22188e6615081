// SPDX-License-Identifier: MIT
#include <cstring>
#include <set>

#include "kformer/model/decoder_layer.hpp"
#include "model/adapter_layers.hpp"
#include "model/booked_memory.hpp"
#include "model/small_layer.hpp"

namespace kformer::Testing {
namespace {

struct Case {
  const char* name;
  LlamaConfig config;
  LayerShape shape;
  LoraConfig lora;
};

std::vector<Case> cases() {
  LlamaConfig biased = small_config(), normed = small_config();
  biased.attention_bias = true;
  normed.qk_norm = true;
  LoraConfig different = LoraConfig::all(3, 5);
  different[Projection::q] = {.rank = 7, .alpha = 2};
  different[Projection::v] = {.rank = 1, .alpha = 30};
  different[Projection::down] = {.rank = 0, .alpha = 4};
  different.rank_stabilized = true;
  return {
      {"all projections", small_config(), {3, 7}, LoraConfig::all(4, 8)},
      {"queries and values", small_config(), {1, 33}, lora_on({Projection::q, Projection::v}, {5, 10})},
      {"keys, biases", biased, {2, 7}, lora_on({Projection::k}, {2, 3})},
      {"all, biases", biased, {2, 7}, LoraConfig::all(8, 16)},
      {"all, norms of heads", normed, {2, 7}, LoraConfig::all(2, 4)},
      {"behind attention", small_config(), {6, 1}, lora_on({Projection::o}, {3, 3})},
      {"gate", small_config(), {1, 40}, lora_on({Projection::gate}, {16, 16})},
      {"up and down", small_config(), {1, 40}, lora_on({Projection::up, Projection::down}, {2, 1})},
      {"other ranks, rank-stabilised", small_config(), {2, 7}, different},
  };
}

constexpr AttentionAlgorithm algorithms[] = {AttentionAlgorithm::standard, AttentionAlgorithm::flash};

}  // namespace

BOOST_AUTO_TEST_SUITE(decoder_layer_adapters)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_references, T, Scalars) {
  for (const Case& c : cases()) {
    const LayerInputs inputs = LayerInputs::random(c.config, c.shape, 3, c.lora).template rounded<T>();
    const auto expected = inputs.template reference<naive_t<T>, T>();
    for (const AttentionAlgorithm algorithm : algorithms)
      BOOST_TEST_CONTEXT(c.name << ", " << name_of(algorithm)) { check_layer<T>(inputs, algorithm, expected); }
  }
}

BOOST_AUTO_TEST_CASE(gradients_are_those_of_the_merged_layer) {
  for (const Case& c : cases())
    BOOST_TEST_CONTEXT(c.name) check_against_merged(LayerInputs::random(c.config, c.shape, 4, c.lora));
}

// B = 0, as training starts.
BOOST_AUTO_TEST_CASE_TEMPLATE(an_adapter_of_zeros_changes_nothing, T, Scalars) {
  LayerInputs inputs = LayerInputs::random(small_config(), {2, 9}, 5, LoraConfig::all(4, 8));
  for (auto& [name, w] : inputs.weights)
    if (name.ends_with("lora_B.weight")) w = HostTensor<double>({w.extent(0), w.extent(1)});
  LayerInputs plain = LayerInputs::random(small_config(), {2, 9}, 5);
  plain.x = inputs.x, plain.dy = inputs.dy;
  for (auto& [name, w] : plain.weights) w = inputs.weights.at(name);
  LayerUnderTest<T> adapted(inputs, AttentionAlgorithm::flash), base(plain, AttentionAlgorithm::flash);
  for (auto* layer : {&adapted, &base}) layer->forward(), layer->backward();
  const auto expected = plain.template rounded<T>().template reference<naive_t<T>, T>();
  check_close("y", adapted.y(), expected.y);
  check_close("dx", adapted.dx(), expected.dx);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(recomputation_gives_the_same_bits, T, Scalars) {
  for (const Case& c : cases())
    BOOST_TEST_CONTEXT(c.name) check_recomputation<T>(LayerInputs::random(c.config, c.shape, 6, c.lora));
}

// Frozen weights have no gradients: what is booked is the adapters', to the byte.
BOOST_AUTO_TEST_CASE_TEMPLATE(frozen_weights_have_no_gradients, T, Scalars) {
  using C = compute_t<T>;
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      const LayerInputs inputs = LayerInputs::random(c.config, c.shape, 7, c.lora);
      LayerUnderTest<T> run(inputs, AttentionAlgorithm::flash);
      run.forward();
      run.backward();
      std::set<std::string> names;
      for (const Parameter& p : run.layer().parameters()) BOOST_TEST(!p.gradient.present(), p.name);
      MemoryLayout weights, gradients;
      for (const auto& [name, t] : inputs.weights)
        if (name.find("lora_") != name.npos) names.insert(name);
      for (const Parameter& p : run.layer().adapters()) {
        BOOST_TEST(names.erase(p.name) == 1u, p.name);
        BOOST_TEST(p.gradient.same_extents(p.weight));
      }
      BOOST_TEST(names.empty());
      // Arrays start at multiples of 64 bytes; A of neighbours is one.
      std::size_t least = 0;
      for (const Parameter& p : run.layer().adapters()) least += static_cast<std::size_t>(p.weight.size());
      const std::size_t booked = run.ledger().peak(MemoryClass::gradients);
      BOOST_TEST(booked >= least * sizeof(C));
      BOOST_TEST(booked <= least * sizeof(C) + 11 * 64);
    }
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_the_forecast) {
  for (const Case& c : cases())
    check_booked_memory([&](const std::shared_ptr<Ledger>& ledger) {
      for (const Recompute policy : policies)
        DecoderLayer<Exec, float>(c.config, c.shape, {.recompute = policy, .lora = c.lora}, *ledger);
    });
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
