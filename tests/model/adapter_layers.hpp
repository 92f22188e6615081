// SPDX-License-Identifier: MIT
#pragma once

#include "model/layer_run.hpp"

/// \file
/// Layers with adapters, and the dense layers that they are compared with.

namespace kformer::Testing {

/// The same adapter on some projections.
inline LoraConfig lora_on(std::initializer_list<Projection> targets, LoraTarget target) {
  LoraConfig lora;
  for (const Projection p : targets) lora[p] = target;
  return lora;
}

/// The dense layer whose weights are W + s B A, with W the values of the blocks where weights are quantised.
inline LayerInputs merged(const LayerInputs& inputs) {
  LayerInputs dense{inputs.config, inputs.shape, {}, inputs.x, inputs.dy};
  for (const auto& [name, weight] : inputs.weights) {
    if (name.find(".lora_") != name.npos) continue;
    auto& w = dense.weights[name] = weight;
    const std::string map = name.substr(0, name.rfind('.'));
    if (!name.ends_with(".weight") || !inputs.weights.contains(map + ".lora_A.weight")) continue;
    const auto &a = inputs.weights.at(map + ".lora_A.weight"), &b = inputs.weights.at(map + ".lora_B.weight");
    for (std::int64_t o = 0; o < w.extent(0); ++o)
      for (std::int64_t i = 0; i < w.extent(1); ++i)
        for (std::int64_t k = 0; k < a.extent(0); ++k)
          w(o, i) += scale_of(inputs.lora, map) * b(o, k) * a(k, i);
  }
  return dense;
}

/// dA = s Bᵀ dW or dB = s dW Aᵀ.
inline HostTensor<double> adapter_gradient(const LayerInputs& inputs, const std::string& name,
                                           const HostTensor<double>& dw) {
  const std::string map = name.substr(0, name.find(".lora_"));
  const auto &a = inputs.weights.at(map + ".lora_A.weight"), &b = inputs.weights.at(map + ".lora_B.weight");
  const double scale = scale_of(inputs.lora, map);
  const bool of_a = name.ends_with("lora_A.weight");
  HostTensor<double> d({of_a ? a.extent(0) : b.extent(0), of_a ? a.extent(1) : b.extent(1)});
  for (std::int64_t o = 0; o < dw.extent(0); ++o)
    for (std::int64_t i = 0; i < dw.extent(1); ++i)
      for (std::int64_t k = 0; k < a.extent(0); ++k)
        if (of_a)
          d(k, i) += scale * b(o, k) * dw(o, i);
        else
          d(o, k) += scale * dw(o, i) * a(k, i);
  return d;
}

/// Requires the results of the merged layer, and the gradients of adapters that follow from those of its weights.
inline void check_against_merged(const LayerInputs& inputs) {
  LayerUnderTest<double> run(inputs, AttentionAlgorithm::flash),
      dense(merged(inputs), AttentionAlgorithm::flash);
  for (auto* layer : {&run, &dense}) layer->forward(), layer->backward();
  check_equal("y", run.y().read<double>(), dense.y().read<double>());
  check_equal("dx", run.dx().read<double>(), dense.dx().read<double>());
  NamedTensors<double> dw;
  for (const Parameter& p : dense.layer().parameters()) dw[p.name] = dense.gradient<double>(p);
  for (const Parameter& p : run.layer().adapters())
    check_equal(p.name, run.gradient<double>(p),
                adapter_gradient(inputs, p.name, dw.at(p.name.substr(0, p.name.find(".lora_")) + ".weight")));
}

/// Runs a layer whose adapters may have dropout, and judges its results and the gradients of the adapters.
template <class T>
void check_dropped_layer(const LayerInputs& inputs, const std::optional<DropoutDraw>& draw,
                         std::int64_t layer_number = 0) {
  const auto expected = inputs.template reference<naive_t<T>, T>();
  LayerUnderTest<T> run(inputs, AttentionAlgorithm::flash);
  run.layer().set_dropout(draw, layer_number);
  run.forward();
  run.backward();
  check_close("y", run.y(), expected.y);
  check_close("dx", run.dx(), expected.dx);
  for (const Parameter& p : run.layer().adapters())
    check_close<compute_t<T>>(p.name, run.template gradient<oracle_t<T>>(p), expected.gradients.at(p.name));
  BOOST_TEST(run.guards_intact());
}

}  // namespace kformer::Testing
