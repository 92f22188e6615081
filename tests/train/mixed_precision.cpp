// SPDX-License-Identifier: MIT
// A decoder layer in 16 bits with the loss scaled, against the same in double.
#include "kformer/ops/attention.hpp"
#include "kformer/train/optimizer.hpp"

#include <cmath>

#include "model/layer_run.hpp"

namespace kformer::Testing {
namespace {

LlamaConfig config() {
  return {.hidden_size = 64,
          .intermediate_size = 96,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 16};
}

/// Inputs of f16 whose output gradient is so small that f16 keeps next to nothing of it; a power of two, so
/// that a large enough loss scale loses nothing.
LayerInputs inputs_with_small_gradient(unsigned seed, double factor) {
  LayerInputs inputs = LayerInputs::random(config(), {2, 33}, seed).rounded<f16>();
  for (double& value : inputs.dy.values()) value *= factor;
  return inputs;
}

/// The parameters' gradients divided by `scale`.
template <class T>
NamedTensors<double> gradients_of(const LayerUnderTest<T>& run, double scale) {
  NamedTensors<double> all;
  for (const Parameter& p : run.layer().parameters()) {
    all[p.name] = run.template gradient<double>(p);
    for (double& value : all[p.name].values()) value /= scale;
  }
  return all;
}

/// Backward from dy · scale.
template <class T>
void run_scaled(LayerUnderTest<T>& run, const LayerInputs& inputs, double scale) {
  run.write_output_gradient(inputs.dy, scale);
  run.zero_gradients();
  run.forward();
  run.backward();
}

/// The weights' bits, and those of everything an optimizer keeps.
template <class T>
std::vector<std::vector<unsigned char>> bits_of(const Optimizer<Exec, T>& optimizer) {
  std::vector<std::vector<unsigned char>> all;
  for (const AdamWParameter& p : optimizer.parameters())
    for (const TensorRef& array : {p.weight, p.master, p.m, p.v})
      dispatch_dtype(array.dtype, [&]<class S>(std::type_identity<S>) {
        const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, flat_view<S>(array));
        const auto* bytes = reinterpret_cast<const unsigned char*>(host.data());
        all.emplace_back(bytes, bytes + host.size() * sizeof(S));
      });
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mixed_precision)

BOOST_AUTO_TEST_CASE(a_layer_gradient_that_underflows_in_f16_is_recovered) {
  constexpr double small = 0x1p-24, scale = 0x1p20;
  for (const unsigned seed : {1u, 2u}) {
    const LayerInputs inputs = inputs_with_small_gradient(seed, small);
    const auto expected = inputs.reference<double, double>().gradients;
    // What f16 gives at best: its own backward from a gradient that does not underflow.
    LayerInputs enlarged = inputs;
    for (double& value : enlarged.dy.values()) value *= scale;
    auto naive = enlarged.reference<naive_t<f16>, f16>().gradients;
    for (auto& [name, t] : naive)
      for (auto& value : t.values()) value /= scale;

    LayerUnderTest<f16> run(inputs, AttentionAlgorithm::flash);
    for (const double factor : {1.0, scale}) {
      run_scaled(run, inputs, factor);
      for (const auto& [name, gradient] : gradients_of(run, factor)) {
        const Comparison c = compare<float>(gradient, expected.at(name), naive.at(name));
        BOOST_TEST(c.ok == (factor == scale), name << ", scale " << factor << ": " << c.report);
      }
    }
  }
}

// From a scale that overflows in f16: steps are skipped, and change nothing, until the gradients are finite.
BOOST_AUTO_TEST_CASE(a_loss_scale_that_overflows_backs_off_and_grows_again) {
  const LayerInputs inputs = LayerInputs::random(config(), {2, 33}).rounded<f16>();
  LayerUnderTest<f16> run(inputs, AttentionAlgorithm::flash);
  const auto ledger = Ledger::create();
  Optimizer<Exec, f16> optimizer(
      run.layer().parameters(),
      {.loss_scaling = LossScaling{.initial = 0x1p24, .growth_interval = 2, .greatest = 0x1p24}}, *ledger);
  optimizer.prepare(Exec());
  const auto before = bits_of(optimizer);

  const auto step = [&] {
    run_scaled(run, inputs, optimizer.scaler().scale());
    return optimizer.step(Exec(), 1e-3);
  };
  double scale = 0x1p24;
  while (!step()) {
    BOOST_TEST((bits_of(optimizer) == before), "a skipped step changed something");
    scale /= 2;
    BOOST_TEST(optimizer.scaler().scale() == scale);
    BOOST_TEST(!std::isfinite(optimizer.scaler().norm()));
    BOOST_REQUIRE(scale > 1);
  }
  BOOST_TEST(scale < 0x1p24);
  BOOST_TEST(optimizer.steps() == 1);
  BOOST_TEST(optimizer.skipped_steps() == std::log2(0x1p24 / scale));
  BOOST_TEST((bits_of(optimizer) != before));

  double sum = 0;
  const auto exact = inputs.reference<double, double>().gradients;
  for (const auto& [name, t] : exact)
    for (const double value : t.values()) sum += value * value;
  // The norm of the loss itself: its relative error is that of f16 arithmetic, some 2^-11 per element.
  BOOST_TEST(std::abs(optimizer.scaler().norm() / std::sqrt(sum) - 1) < 0x1p-8);

  BOOST_TEST(step());
  BOOST_TEST(optimizer.steps() == 2);
  BOOST_TEST(optimizer.scaler().scale() == 2 * scale);  // two good steps in a row
  BOOST_TEST(!step());
  BOOST_TEST(optimizer.scaler().scale() == scale);
}

// Each kernel of attention is forced on a layer: those that round attention weights refuse, with a reason.
BOOST_AUTO_TEST_CASE(full_precision_refuses_kernels_that_round_attention_weights) {
  const LayerInputs inputs = LayerInputs::random(config(), {1, 130}).rounded<bf16>();
  for (const auto& kernel : kernels<kformer::Impl::AttentionForward, Exec>()) {
    const std::string name = kernel.name;
    const ForcedKernels forced("attention_forward:" + name);
    const auto refusal = [&](Precision compute) -> std::string {
      LayerUnderTest<bf16> run(inputs, AttentionAlgorithm::flash, LayerMode::inference, Exec(), compute);
      try {
        run.forward();
      } catch (const NotSupported& error) {
        return error.what();
      }
      return {};
    };
    const std::string storage = refusal(Precision::storage), full = refusal(Precision::full);
    if (name.ends_with("avx512_bf16"))
      BOOST_TEST(full.find("it rounds attention weights to bf16, but compute = full was requested") !=
                     std::string::npos,
                 name << ": " << full);
    else
      BOOST_TEST(full == storage, name << ": " << full);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
