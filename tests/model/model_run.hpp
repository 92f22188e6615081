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
      : ModelUnderTest(inputs, mode, algorithm,
                       RecomputeSchedule::uniform(Recompute::pointwise, inputs.config.num_hidden_layers)) {}

  /// `lengths`: of the documents that fill the rows, if they are packed. `room`: how much longer sequences might be.
  ModelUnderTest(const ModelInputs& inputs, LayerMode mode, AttentionAlgorithm algorithm,
                 const RecomputeSchedule& schedule, const std::vector<std::int64_t>& lengths = {},
                 bool accumulate = true, std::int64_t room = 0)
      : m_ledger(Ledger::create()),
        m_model(inputs.config, {inputs.shape.batch, inputs.shape.seq_len + room},
                {.attention = algorithm, .mode = mode, .packed = !lengths.empty(), .accumulate = accumulate},
                *m_ledger, schedule) {
    const std::int64_t rows = inputs.shape.rows();
    if (!lengths.empty()) pack(lengths, rows);
    m_ids = TestTensor<Exec, std::int32_t>({rows});
    m_targets = TestTensor<Exec, std::int32_t>({rows});
    write_tokens(inputs);
    m_logits = TestTensor<Exec, T>({rows, inputs.config.vocab_size});
    for (auto* t : {&m_loss, &m_dloss}) *t = TestTensor<Exec, C>({rows});
    m_dloss.fill([&](std::size_t) { return C(1) / static_cast<C>(rows); });
    for (const Parameter& p : m_model.parameters()) write_parameter<T>(p.weight, inputs.weights.at(p.name));
    m_model.prepare(Exec());
    m_model.use_seq_len(inputs.shape.seq_len);
    fence();
  }

  /// Goes on with other tokens of the same shape.
  void write_tokens(const ModelInputs& inputs) {
    m_ids.fill([&](std::size_t i) { return inputs.ids[i]; });
    m_targets.fill([&](std::size_t i) { return inputs.targets[i]; });
  }
  void forward() {
    m_model.forward(Exec(), m_ids.template view<1>(), m_packed);
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
  void pack(const std::vector<std::int64_t>& lengths, std::int64_t rows) {
    std::vector<std::int32_t> starts{0}, positions;
    for (const std::int64_t length : lengths) {
      starts.push_back(starts.back() + static_cast<std::int32_t>(length));
      for (std::int64_t i = 0; i < length; ++i) positions.push_back(static_cast<std::int32_t>(i));
    }
    m_starts = TestTensor<Exec, std::int32_t>({static_cast<std::int64_t>(starts.size())});
    m_positions = TestTensor<Exec, std::int32_t>({rows});
    m_starts.fill([&](std::size_t i) { return starts[i]; });
    m_positions.fill([&](std::size_t i) { return positions[i]; });
    m_packed = {m_starts.template view<1>(), m_positions.template view<1>()};
  }
  static void fence() { Exec().fence("kformer::Testing::model"); }

  std::shared_ptr<Ledger> m_ledger;
  LlamaModel<Exec, T> m_model;
  TestTensor<Exec, std::int32_t> m_ids, m_targets, m_starts, m_positions;
  PackedTokens<typename Exec::memory_space> m_packed;
  TestTensor<Exec, T> m_logits;
  TestTensor<Exec, C> m_loss, m_dloss;
};

}  // namespace kformer::Testing
