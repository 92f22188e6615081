// SPDX-License-Identifier: MIT
// Magnitudes of adapters (DoRA), against the references and against dense differentiation.
#include "model/adapters/magnitudes.hpp"

#include "model/adapter_layers.hpp"
#include "model/adapters/dropout.hpp"
#include "model/booked_memory.hpp"
#include "model/small_layer.hpp"
#include "support/distance.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

constexpr DropoutDraw draw{.seed = 7, .step = 2, .first_row = 3};

struct Case {
  const char* name;
  LlamaConfig config;
  LayerShape shape;
  LoraConfig lora;
  WeightFormats formats{};  // of weights that stay quantised
};

std::vector<Case> cases() {
  LlamaConfig biased = small_config(), normed = small_config();
  biased.attention_bias = true;
  normed.qk_norm = true;
  LoraConfig all = LoraConfig::all(3, 5), some;
  some[Projection::k] = {.rank = 2, .alpha = 3};
  some[Projection::v] = {.rank = 5, .alpha = 1};
  some[Projection::up] = {.rank = 1, .alpha = 2};
  all.magnitudes = some.magnitudes = true;
  some.rank_stabilized = true;
  std::vector<Case> cases{{"all, biases", biased, {2, 7}, all},
                          {"some, biases", biased, {1, 33}, some},
                          {"all, norms of heads", normed, {3, 5}, all},
                          {"some quantised",
                           biased,
                           {2, 7},
                           all,
                           {{"self_attn.q_proj.weight", QuantizedFormat::nf4},
                            {"self_attn.v_proj.weight", QuantizedFormat::tq1_0},
                            {"self_attn.o_proj.weight", QuantizedFormat::q4_1},
                            {"mlp.up_proj.weight", QuantizedFormat::q4_0}}},
                          {"others quantised, without an adapter, too",
                           biased,
                           {1, 33},
                           some,
                           {{"self_attn.q_proj.weight", QuantizedFormat::q8_0},
                            {"self_attn.k_proj.weight", QuantizedFormat::tq2_0},
                            {"self_attn.v_proj.weight", QuantizedFormat::nf4},
                            {"mlp.up_proj.weight", QuantizedFormat::q8_0}}}};
  for (const QuantizedFormat format : quantized_formats) {
    cases.push_back({"all quantised alike", normed, {2, 5}, all});
    for (std::size_t p = 0; p < names_of<Projection>.size(); ++p)
      cases.back().formats[projection_weight_name(static_cast<Projection>(p))] = format;
  }
  return cases;
}

/// Magnitudes near the norms that they replace, and one that is negative.
LayerInputs inputs_of(const Case& c, unsigned seed) {
  LayerInputs inputs = LayerInputs::random(c.config, c.shape, seed, c.lora);
  for (auto& [name, t] : inputs.weights)
    if (name.ends_with("magnitude_vector")) t(2) = -t(2);
  inputs.quantize(c.formats);
  return inputs;
}

/// With the library's own masks, which adapter_dropout.cpp checks.
LayerInputs dropped(LayerInputs inputs, double p) {
  inputs.lora.dropout = p;
  for (std::size_t i = 0; i < inputs.lora.targets.size(); ++i) {
    const auto projection = static_cast<Projection>(i);
    if (inputs.lora.targets[i].rank == 0) continue;
    const kformer::Impl::DropoutMask mask(p, draw, 0, projection);
    HostTensor<double> factors({inputs.shape.rows(), projection_extents(inputs.config, projection)[1]});
    for (std::int64_t r = 0; r < factors.extent(0); ++r)
      for (std::int64_t c = 0; c < factors.extent(1); ++c)
        factors(r, c) = mask.words(static_cast<std::size_t>(r), static_cast<std::size_t>(c / 4)).word[c % 4] <
                                mask.threshold
                            ? 0
                            : 1 / (1 - p);
    inputs.masks[(i < 4 ? "self_attn." : "mlp.") + std::string(names_of<Projection>[i])] = factors;
  }
  return inputs;
}

template <class T>
constexpr double roundoff = sizeof(T) == 8           ? 0x1p-53
                            : sizeof(T) == 4         ? 0x1p-24
                            : std::is_same_v<T, f16> ? 0x1p-11
                                                     : 0x1p-8;

/// A map with its adapter: W + s B A, and the norms of its rows.
struct Sum {
  HostTensor<double> v;
  std::vector<double> norm;

  Sum(const LayerInputs& inputs, const std::string& map) : v(inputs.weights.at(map + ".weight")) {
    const auto &a = inputs.weights.at(map + ".lora_A.weight"), &b = inputs.weights.at(map + ".lora_B.weight");
    for (std::int64_t o = 0; o < v.extent(0); ++o) {
      double square = 0;
      for (std::int64_t i = 0; i < v.extent(1); ++i) {
        for (std::int64_t k = 0; k < a.extent(0); ++k)
          v(o, i) += scale_of(inputs.lora, map) * b(o, k) * a(k, i);
        square += v(o, i) * v(o, i);
      }
      norm.push_back(std::sqrt(square));
    }
  }
};

template <class T>
void check_case(const LayerInputs& inputs) {
  check_dropped_layer<T>(inputs.template rounded<T>(),
                         inputs.masks.empty() ? std::nullopt : std::optional(draw));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(adapter_magnitudes)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_references, T, Scalars) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      check_case<T>(inputs_of(c, 3));
      check_case<T>(dropped(inputs_of(c, 4), 0.25));
    }
}

// The dense layer has the weights g (W + s B A) with g = m/‖W + s B A‖. From their gradients dW and constant norms come
// dA = s Bᵀ (g dW), dB = s (g dW) Aᵀ and dm = Σ_i dW_i (W + s B A)_i/‖W + s B A‖.
BOOST_AUTO_TEST_CASE(gradients_are_those_of_dense_differentiation) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      const LayerInputs inputs = inputs_of(c, 5);
      LayerInputs dense_inputs = LayerInputs::random(c.config, c.shape, 5);
      dense_inputs.x = inputs.x, dense_inputs.dy = inputs.dy;
      std::map<std::string, Sum> sums;
      const auto gain = [&](const std::string& map, std::int64_t o) {
        return inputs.weights.at(map + ".lora_magnitude_vector")(o) /
               sums.at(map).norm[static_cast<std::size_t>(o)];
      };
      for (auto& [name, w] : dense_inputs.weights) {
        w = inputs.weights.at(name);
        const std::string map = name.substr(0, name.rfind('.'));
        if (!name.ends_with(".weight") || !inputs.weights.contains(map + ".lora_A.weight")) continue;
        w = sums.try_emplace(map, inputs, map).first->second.v;
        for (std::int64_t o = 0; o < w.extent(0); ++o)
          for (std::int64_t i = 0; i < w.extent(1); ++i) w(o, i) *= gain(map, o);
      }
      LayerUnderTest<double> run(inputs, AttentionAlgorithm::flash),
          dense(dense_inputs, AttentionAlgorithm::flash);
      for (auto* layer : {&run, &dense}) layer->forward(), layer->backward();
      check_equal("y", run.y().read<double>(), dense.y().read<double>());
      check_equal("dx", run.dx().read<double>(), dense.dx().read<double>());
      NamedTensors<double> dw;
      for (const Parameter& p : dense.layer().parameters()) dw[p.name] = dense.gradient<double>(p);
      int magnitudes = 0;
      for (const Parameter& p : run.layer().adapters()) {
        const std::string map = p.name.substr(0, p.name.find(".lora_"));
        const auto &a = inputs.weights.at(map + ".lora_A.weight"),
                   &b = inputs.weights.at(map + ".lora_B.weight");
        const Sum& sum = sums.at(map);
        const auto& d = dw.at(map + ".weight");
        const double scale = scale_of(c.lora, map);
        auto expected = inputs.weights.at(p.name);
        for (double& v : expected.values()) v = 0;
        for (std::int64_t o = 0; o < d.extent(0); ++o)
          for (std::int64_t i = 0; i < d.extent(1); ++i) {
            if (p.name.ends_with("vector"))
              expected(o) += d(o, i) * sum.v(o, i) / sum.norm[static_cast<std::size_t>(o)];
            else
              for (std::int64_t k = 0; k < a.extent(0); ++k)
                if (p.name.ends_with("lora_A.weight"))
                  expected(k, i) += scale * b(o, k) * gain(map, o) * d(o, i);
                else
                  expected(o, k) += scale * gain(map, o) * d(o, i) * a(k, i);
          }
        check_equal(p.name, run.gradient<double>(p), expected);
        magnitudes += p.name.ends_with("vector");
      }
      BOOST_TEST(magnitudes == static_cast<int>(sums.size()));
    }
}

// Where training starts, and after weights and adapters became one.
BOOST_AUTO_TEST_CASE_TEMPLATE(magnitudes_that_are_norms_change_nothing, T, Scalars) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      const LayerInputs inputs = inputs_of(c, 6).template rounded<T>();
      LayerInputs plain = inputs;
      plain.lora.magnitudes = false;
      LayerUnderTest<T> run(inputs, AttentionAlgorithm::flash), without(plain, AttentionAlgorithm::flash);
      run.layer().reset_magnitudes(Exec());
      without.forward();
      run.forward();
      // A magnitude is rounded to T.
      check_near("y", run.y().template read<double>().values(), without.y().template read<double>().values(),
                 8 * roundoff<T>);
    }
}

BOOST_AUTO_TEST_CASE(the_merged_layer_computes_the_same) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      if (!c.formats.empty()) continue;
      const LayerInputs inputs = inputs_of(c, 7);
      LayerUnderTest<double> run(inputs, AttentionAlgorithm::flash);
      run.forward();
      const auto before = run.y().read<double>();
      run.layer().merge_adapters(Exec());
      run.forward();
      check_equal("y", run.y().read<double>(), before);
      for (const Parameter& p : run.layer().parameters()) {
        const std::string map = p.name.substr(0, p.name.rfind('.'));
        if (!p.name.ends_with("_proj.weight") || !inputs.weights.contains(map + ".lora_A.weight")) continue;
        Sum sum(inputs, map);
        for (std::int64_t o = 0; o < sum.v.extent(0); ++o)
          for (std::int64_t i = 0; i < sum.v.extent(1); ++i)
            sum.v(o, i) *=
                inputs.weights.at(map + ".lora_magnitude_vector")(o) / sum.norm[static_cast<std::size_t>(o)];
        const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, flat_view<double>(p.weight));
        HostTensor<double> merged({sum.v.extent(0), sum.v.extent(1)});
        merged.values().assign(host.data(), host.data() + host.size());
        check_equal(p.name, merged, sum.v);
      }
    }
}

// A row of W + s B A that is 0 has no direction: its output is 0, and nothing is divided by 0.
BOOST_AUTO_TEST_CASE(a_row_of_zeros_stays_zero) {
  Case c = cases()[0];
  c.config.attention_bias = false;
  LayerInputs inputs = inputs_of(c, 8);
  for (const char* name : {"mlp.up_proj.weight", "mlp.up_proj.lora_B.weight"}) {
    auto& t = inputs.weights.at(name);
    for (std::int64_t i = 0; i < t.extent(1); ++i) t(4, i) = 0;
  }
  LayerUnderTest<double> run(inputs, AttentionAlgorithm::flash);
  run.forward();
  run.backward();
  const auto y = run.y().read<double>();
  for (const double v : y.values()) BOOST_TEST(std::isfinite(v));
  for (const Parameter& p : run.layer().adapters()) {
    const auto g = run.gradient<double>(p);
    for (const double v : g.values()) BOOST_TEST(std::isfinite(v), p.name);
    if (p.name == "mlp.up_proj.lora_magnitude_vector") BOOST_TEST(g(4) == 0);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(recomputation_gives_the_same_bits, T, Scalars) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      LayerInputs inputs = inputs_of(c, 9);
      check_recomputation<T>(inputs);
      inputs.lora.dropout = 0.25;
      check_recomputation<T>(inputs, draw);
    }
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_the_forecast) {
  for (const Case& c : cases())
    for (const LayerMode mode : {LayerMode::training, LayerMode::inference})
      check_booked_memory([&](const std::shared_ptr<Ledger>& ledger) {
        for (const Recompute policy : policies)
          DecoderLayer<Exec, float>(c.config, c.shape,
                                    {.mode = mode, .recompute = policy, .lora = c.lora, .formats = c.formats},
                                    *ledger);
      });
}

// Arrays that are only counted are nowhere, as the optimizer wants it.
BOOST_AUTO_TEST_CASE(counted_magnitudes_have_no_address) {
  const Case c = cases()[1];
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const DecoderLayer<Exec, float> layer(c.config, c.shape, {.lora = c.lora}, *ledger);
  for (const Parameter& p : layer.adapters()) BOOST_TEST((!p.weight.data && !p.gradient.data), p.name);
}

// Inference computes with magnitudes, too.
BOOST_AUTO_TEST_CASE_TEMPLATE(inference_has_the_bits_of_training, T, Scalars) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      const LayerInputs inputs = inputs_of(c, 10);
      LayerUnderTest<T> training(inputs, AttentionAlgorithm::flash),
          inference(inputs, AttentionAlgorithm::flash, LayerMode::inference);
      training.forward();
      inference.forward();
      BOOST_TEST((training.y().bits() == inference.y().bits()));
    }
}

// Off, the layer is that of the weights alone, and on again that of the magnitudes.
BOOST_AUTO_TEST_CASE_TEMPLATE(switched_off_magnitudes_are_nothing, T, Scalars) {
  for (const Case& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      const LayerInputs inputs = inputs_of(c, 12);
      LayerInputs plain = inputs;
      // Weights stay quantised only beside adapters.
      if (c.formats.empty())
        plain.lora = {};
      else
        plain.lora.magnitudes = false;
      LayerUnderTest<T> run(inputs, AttentionAlgorithm::flash), base(plain, AttentionAlgorithm::flash);
      base.layer().use_adapters(AdapterUse::off);
      base.forward();
      run.forward();
      const auto on = run.y().bits();
      run.layer().use_adapters(AdapterUse::off);
      run.forward();
      BOOST_TEST((run.y().bits() == base.y().bits()));
      run.layer().use_adapters(AdapterUse::on);
      run.forward();
      BOOST_TEST((run.y().bits() == on));
    }
}

BOOST_AUTO_TEST_CASE(magnitudes_are_in_the_group_of_b_and_decay) {
  Case c = cases()[0];
  c.lora.learning_rate_ratio = 4;
  LayerUnderTest<float> run(inputs_of(c, 11), AttentionAlgorithm::flash);
  for (const Parameter& p : run.layer().adapters()) {
    BOOST_TEST(p.learning_rate_factor == (p.name.ends_with("lora_A.weight") ? 1 : 4), p.name);
    BOOST_TEST(p.vector_decays == (p.weight.rank == 1), p.name);
  }
  for (const Parameter& p : run.layer().parameters()) BOOST_TEST(!p.vector_decays);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
