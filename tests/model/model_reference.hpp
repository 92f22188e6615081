// SPDX-License-Identifier: MIT
#pragma once

#include <random>

#include "model/layer_run.hpp"
#include "ops/embedding/reference.hpp"
#include "support/references.hpp"

/// \file
/// The language model composed of the references: embedding, layers one by one, norm, head, loss.

namespace kformer::Testing {

/// A model's configuration, its weights and the tokens that go in.
struct ModelInputs {
  LlamaConfig config;
  LayerShape shape;
  NamedTensors<double> weights;
  std::vector<std::int32_t> ids, targets;
  LoraConfig lora{};  // of all layers

  /// Random values of the sizes that a trained model has.
  static ModelInputs random(const LlamaConfig& config, LayerShape shape, unsigned seed = 20260101,
                            const LoraConfig& lora = {}) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    ModelInputs all{config, shape, {}, {}, {}, lora};
    const auto matrix = [&](std::int64_t rows, std::int64_t cols, double scale) {
      HostTensor<double> t({rows, cols});
      for (double& v : t.values()) v = scale * normal(generator);
      return t;
    };
    all.weights["model.embed_tokens.weight"] = matrix(config.vocab_size, config.hidden_size, 0.5);
    if (!config.tie_word_embeddings)
      all.weights["lm_head.weight"] = matrix(config.vocab_size, config.hidden_size, 0.5);
    HostTensor<double> norm({config.hidden_size});
    for (double& v : norm.values()) v = 1 + 0.2 * normal(generator);
    all.weights["model.norm.weight"] = norm;
    for (std::int64_t l = 0; l < config.num_hidden_layers; ++l)
      for (const auto& [name, t] :
           LayerInputs::random(config, shape, seed + 1 + static_cast<unsigned>(l), lora).weights)
        all.weights["model.layers." + std::to_string(l) + "." + name] = t;
    for (std::int64_t i = 0; i < shape.rows(); ++i) {
      all.ids.push_back(static_cast<std::int32_t>(generator() % static_cast<unsigned>(config.vocab_size)));
      all.targets.push_back(static_cast<std::int32_t>(generator() % static_cast<unsigned>(config.vocab_size)));
    }
    return all;
  }

  /// Every weight rounded to T.
  template <class T>
  ModelInputs rounded() const {
    ModelInputs copy = *this;
    for (auto& [name, t] : copy.weights)
      for (double& v : t.values()) v = stored<T>(v);
    return copy;
  }
};

/// What a model computes; `loss` are the losses of all tokens and `gradients` those of their mean.
template <class Real>
struct ModelResult {
  HostTensor<Real> logits, loss;
  NamedTensors<Real> gradients;
};

template <class Real, class From>
HostTensor<Real> as_tensor(const std::vector<From>& values) {
  HostTensor<Real> t({static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) t.values()[i] = static_cast<Real>(values[i]);
  return t;
}

/// See host_tensor.hpp for `Real` and `Store`.
template <class Real, class Store>
ModelResult<Real> model_reference(const ModelInputs& in) {
  const LlamaConfig& c = in.config;
  const auto convert = [](const HostTensor<double>& t) {
    auto r = t.rank() == 1 ? HostTensor<Real>({t.extent(0)}) : HostTensor<Real>({t.extent(0), t.extent(1)});
    for (std::size_t i = 0; i < r.values().size(); ++i) r.values()[i] = static_cast<Real>(t.values()[i]);
    return r;
  };
  NamedTensors<Real> w;
  for (const auto& [name, t] : in.weights) w[name] = convert(t);
  const std::string head = c.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  const auto layer_name = [](std::int64_t l) { return "model.layers." + std::to_string(l) + "."; };
  const auto layer = [&](std::int64_t l, const HostTensor<Real>& x, const HostTensor<Real>& dy) {
    NamedTensors<Real> weights;
    for (const auto& [name, t] : w)
      if (name.starts_with(layer_name(l))) weights[name.substr(layer_name(l).size())] = t;
    return layer_reference<Real, Store>(c, in.shape.batch, in.shape.seq_len, weights, x, dy, in.lora);
  };

  const auto ids = as_tensor<Real>(in.ids), targets = as_tensor<Real>(in.targets);
  std::vector<HostTensor<Real>> x{ref::embedding_forward(ids, w.at("model.embed_tokens.weight"))};
  const HostTensor<Real> nothing({in.shape.rows(), c.hidden_size}, Real(0));
  for (std::int64_t l = 0; l < c.num_hidden_layers; ++l) x.push_back(layer(l, x.back(), nothing).y);
  const auto norm = ref::rms_norm_forward<Real, Store>(x.back(), {}, w.at("model.norm.weight"), c.rms_norm_eps);
  ModelResult<Real> r;
  r.logits = ref::linear_forward<Real, Store>(norm.y, w.at(head), {}, {});
  const auto loss = ref::cross_entropy_forward<Real>(r.logits, targets, {});
  r.loss = loss.loss;

  HostTensor<Real> dloss({in.shape.rows()}, Real(1) / static_cast<Real>(in.shape.rows()));
  const auto dlogits = ref::cross_entropy_backward<Real, Store>(r.logits, targets, loss.lse, dloss, {});
  auto& g = r.gradients;
  g[head] = ref::linear_backward_weight<Real>(norm.y, dlogits);
  const auto d_norm =
      ref::rms_norm_backward<Real, Store>(x.back(), w.at("model.norm.weight"), norm.rstd,
                                          ref::linear_backward_input<Real, Store>(w.at(head), dlogits), {});
  g["model.norm.weight"] = d_norm.dweight;
  auto d = d_norm.dx;
  for (std::int64_t l = c.num_hidden_layers; l-- > 0;) {
    auto back = layer(l, x[static_cast<std::size_t>(l)], d);
    for (auto& [name, t] : back.gradients) g[layer_name(l) + name] = std::move(t);
    d = std::move(back.dx);
  }
  auto& embedding = g["model.embed_tokens.weight"];
  if (!embedding.present()) embedding = HostTensor<Real>({c.vocab_size, c.hidden_size}, Real(0));
  embedding = ref::embedding_backward(ids, d, embedding);
  return r;
}

/// The same for documents of these lengths that fill the rows: each is a sequence of its own. Gradients are those
/// of the mean over all tokens.
template <class Real, class Store>
ModelResult<Real> documents_reference(const ModelInputs& in, const std::vector<std::int64_t>& lengths) {
  ModelResult<Real> all;
  all.logits = HostTensor<Real>({in.shape.rows(), in.config.vocab_size});
  all.loss = HostTensor<Real>({in.shape.rows()});
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    ModelInputs document = in;
    document.shape = {1, length};
    const auto part = [&](const std::vector<std::int32_t>& tokens) {
      return std::vector(tokens.begin() + first, tokens.begin() + first + length);
    };
    document.ids = part(in.ids);
    document.targets = part(in.targets);
    const auto one = model_reference<Real, Store>(document);
    std::ranges::copy(one.logits.values(), all.logits.values().begin() + first * in.config.vocab_size);
    std::ranges::copy(one.loss.values(), all.loss.values().begin() + first);
    const Real share = static_cast<Real>(length) / static_cast<Real>(in.shape.rows());
    for (const auto& [name, gradient] : one.gradients) {
      auto& sum = all.gradients.try_emplace(name, gradient).first->second;
      for (std::size_t i = 0; i < gradient.values().size(); ++i)
        sum.values()[i] = (first == 0 ? Real(0) : sum.values()[i]) + share * gradient.values()[i];
    }
    first += length;
  }
  return all;
}

}  // namespace kformer::Testing
