// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/llama_model.hpp"
#include "model/model_reference.hpp"

/// \file
/// A language model with inputs for tests.

namespace kformer::Testing {

/// A model that holds these inputs and has its results at hand.
template <class T>
class ModelUnderTest {
 public:
  using C = compute_t<T>;

  explicit ModelUnderTest(const ModelInputs& inputs, LayerMode mode = LayerMode::training,
                          AttentionAlgorithm algorithm = AttentionAlgorithm::flash)
      : m_ledger(Ledger::create()),
        m_model(inputs.config, inputs.shape, {.attention = algorithm, .mode = mode}, *m_ledger) {
    const std::int64_t rows = inputs.shape.rows();
    m_ids = TestTensor<Exec, std::int32_t>({rows});
    m_targets = TestTensor<Exec, std::int32_t>({rows});
    m_ids.fill([&](std::size_t i) { return inputs.ids[i]; });
    m_targets.fill([&](std::size_t i) { return inputs.targets[i]; });
    m_logits = TestTensor<Exec, T>({rows, inputs.config.vocab_size});
    for (auto* t : {&m_loss, &m_dloss}) *t = TestTensor<Exec, C>({rows});
    m_dloss.fill([&](std::size_t) { return C(1) / static_cast<C>(rows); });
    for (const Parameter& p : m_model.parameters()) write_parameter<T>(p.weight, inputs.weights.at(p.name));
    m_model.prepare(Exec());
    fence();
  }

  void forward() {
    m_model.forward(Exec(), m_ids.template view<1>());
    m_model.logits(Exec(), m_logits.template view<2>());
    m_model.loss(Exec(), m_targets.template view<1>(), m_loss.template view<1>());
    fence();
  }
  void backward() {
    m_model.backward(Exec(), m_ids.template view<1>(), m_targets.template view<1>(), m_dloss.template view<1>(),
                     m_loss.template view<1>());
    fence();
  }

  void forward_embedded(const TestTensor<Exec, T>& x, const CrossEntropyOptions& options = {}) {
    m_model.forward_embedded(Exec(), x.template view<2>());
    m_model.logits(Exec(), m_logits.template view<2>());
    m_model.loss(Exec(), m_targets.template view<1>(), m_loss.template view<1>(), options);
    fence();
  }
  void backward_embedded(const TestTensor<Exec, T>& dx, const CrossEntropyOptions& options = {}) {
    m_model.backward_embedded(Exec(), m_targets.template view<1>(), m_dloss.template view<1>(),
                              m_loss.template view<1>(), dx.template view<2>(), options);
    fence();
  }

  LlamaModel<Exec, T>& model() { return m_model; }
  const Ledger& ledger() const { return *m_ledger; }
  const TestTensor<Exec, T>& logits() const { return m_logits; }
  const TestTensor<Exec, C>& loss() const { return m_loss; }

  /// A parameter gradient.
  template <class Real>
  HostTensor<Real> gradient(const Parameter& p) const {
    return read_gradient<Real, C>(p);
  }

 private:
  static void fence() { Exec().fence("kformer::Testing::model"); }

  std::shared_ptr<Ledger> m_ledger;
  LlamaModel<Exec, T> m_model;
  TestTensor<Exec, std::int32_t> m_ids, m_targets;
  TestTensor<Exec, T> m_logits;
  TestTensor<Exec, C> m_loss, m_dloss;
};

}  // namespace kformer::Testing
