// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/llama_model.hpp"

/// \file
/// Definitions of LlamaModel's members.

namespace kformer {

template <class Exec, Scalar T>
LlamaModel<Exec, T>::LlamaModel(const LlamaConfig& config, LayerShape shape, AttentionAlgorithm algorithm,
                                LayerMode mode, Ledger& ledger, Compute compute)
    : m_config(config), m_shape(shape), m_mode(mode) {
  config.check_model();
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l)
    m_layers.emplace_back(config, shape, algorithm, mode, ledger, compute,
                          m_layers.empty() ? nullptr : &m_layers.front());
  place_ends(ledger, MemoryClass::weights, m_weight);
  if (mode == LayerMode::training) place_ends(ledger, MemoryClass::gradients, m_gradient);
  place_activations(ledger);
}

template <class Exec, Scalar T>
template <class U>
void LlamaModel<Exec, T>::place_ends(Ledger& ledger, MemoryClass memory_class, Ends<U>& ends) const {
  const std::int64_t vocabulary = m_config.vocab_size, hidden = m_config.hidden_size;
  const std::int64_t head_rows = m_config.tie_word_embeddings ? 0 : vocabulary;
  MemoryLayout layout;
  const auto embedding = layout.reserve<U>(vocabulary * hidden), norm = layout.reserve<U>(hidden),
             head = layout.reserve<U>(head_rows * hidden);
  ends.block = ledger.allocate<memory_space>(
      memory_class, std::string("LlamaModel::") + to_string(memory_class), layout.bytes());
  ends.embedding = Impl::matrix_in<U>(ends.block, embedding, vocabulary, hidden);
  ends.head = Impl::matrix_in<U>(ends.block, head, head_rows, hidden);
  ends.norm = Impl::vector_in<U>(ends.block, norm, hidden);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::place_activations(Ledger& ledger) {
  const std::int64_t rows = m_shape.rows(), hidden = m_config.hidden_size;
  const bool training = m_mode == LayerMode::training;
  MemoryLayout saved;
  const std::size_t states = training ? m_layers.size() + 1 : 2;
  std::vector<std::size_t> x;
  for (std::size_t i = 0; i < states; ++i) x.push_back(saved.reserve<T>(rows * hidden));
  const auto last = saved.reserve<T>(rows * hidden), rstd = saved.reserve<C>(rows);
  m_block = ledger.allocate<memory_space>(MemoryClass::activations, "LlamaModel::activations", saved.bytes());
  for (const std::size_t at : x) m_x.push_back(Impl::matrix_in<T>(m_block, at, rows, hidden));
  m_hidden = Impl::matrix_in<T>(m_block, last, rows, hidden);
  m_rstd = Impl::vector_in<C>(m_block, rstd, rows);

  MemoryLayout work;
  const auto loss_bytes = linear_cross_entropy_workspace_bytes<T>(Exec(), rows, m_config.vocab_size);
  const auto norm_bytes = training ? rms_norm_backward_workspace_bytes<T>(Exec(), rows, hidden) : 0;
  const auto loss_at = work.reserve<std::byte>(static_cast<std::int64_t>(loss_bytes));
  const auto norm_at = work.reserve<std::byte>(static_cast<std::int64_t>(norm_bytes));
  const std::int64_t gradient = training ? rows * hidden : 0;
  const auto dx = work.reserve<T>(gradient), dy = work.reserve<T>(gradient);
  m_workspace_block =
      ledger.allocate<memory_space>(MemoryClass::workspace, "LlamaModel::workspace", work.bytes());
  m_loss_workspace =
      Impl::vector_in<std::byte>(m_workspace_block, loss_at, static_cast<std::int64_t>(loss_bytes));
  m_norm_workspace =
      Impl::vector_in<std::byte>(m_workspace_block, norm_at, static_cast<std::int64_t>(norm_bytes));
  m_dx = Impl::matrix_in<T>(m_workspace_block, dx, training ? rows : 0, hidden);
  m_dy = Impl::matrix_in<T>(m_workspace_block, dy, training ? rows : 0, hidden);
}

template <class Exec, Scalar T>
std::vector<Parameter> LlamaModel<Exec, T>::parameters() const {
  const auto gradient = [&](const auto& view) {
    return m_mode == LayerMode::training ? tensor_ref(view) : TensorRef{};
  };
  std::vector<Parameter> all{
      {"model.embed_tokens.weight", tensor_ref(m_weight.embedding), gradient(m_gradient.embedding)}};
  for (std::size_t l = 0; l < m_layers.size(); ++l)
    for (Parameter p : m_layers[l].parameters()) {
      p.name = "model.layers." + std::to_string(l) + "." + p.name;
      all.push_back(std::move(p));
    }
  all.push_back({"model.norm.weight", tensor_ref(m_weight.norm), gradient(m_gradient.norm)});
  if (!m_config.tie_word_embeddings)
    all.push_back({"lm_head.weight", tensor_ref(m_weight.head), gradient(m_gradient.head)});
  return all;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::zero_gradients(const Exec& exec) const {
  for (const auto& layer : m_layers) layer.zero_gradients(exec);
  auto* gradient = m_gradient.block.template at<C>(0);
  const std::size_t count = m_gradient.block.bytes() / sizeof(C);
  Kokkos::parallel_for(
      "kformer::LlamaModel::zero_gradients", Kokkos::RangePolicy<Exec>(exec, 0, count),
      KOKKOS_LAMBDA(std::size_t i) { gradient[i] = 0; });
}

template <class Exec, Scalar T>
template <ViewOf<1> I>
void LlamaModel<Exec, T>::forward(const Exec& exec, const I& ids) const {
  {
    Region region("embedding");
    embedding_forward(exec, ids, m_weight.embedding, m_x[0]);
  }
  const std::size_t states = m_x.size();
  for (std::size_t l = 0; l < m_layers.size(); ++l)
    m_layers[l].forward(exec, m_x[l % states], m_x[(l + 1) % states]);
  Region region("final_norm");
  rms_norm_forward(exec, m_x[m_layers.size() % states], m_weight.norm, m_hidden, m_rstd,
                   {.eps = m_config.rms_norm_eps});
}

template <class Exec, Scalar T>
template <ViewOf<1> I, ViewOf<1> J, ViewOf<1> D, ViewOf<1> O>
void LlamaModel<Exec, T>::backward(const Exec& exec, const I& ids, const J& targets, const D& dloss,
                                   const O& loss) const {
  if (m_mode != LayerMode::training)
    throw NotSupported(
        "kformer::LlamaModel::backward: the model was made for inference and keeps nothing for backward; "
        "construct it with LayerMode::training");
  {
    Region region("loss");
    linear_cross_entropy(exec,
                         LinearCrossEntropyOperands{.x = m_hidden,
                                                    .weight = head(),
                                                    .targets = targets,
                                                    .dloss = dloss,
                                                    .loss = loss,
                                                    .dx = m_dy,
                                                    .dweight = head_gradient()},
                         {}, m_loss_workspace);
  }
  {
    Region region("final_norm");
    rms_norm_backward(exec,
                      RmsNormBackwardOperands{.x = m_x.back(),
                                              .weight = m_weight.norm,
                                              .rstd = m_rstd,
                                              .dy = m_dy,
                                              .dx = m_dx,
                                              .dweight = m_gradient.norm},
                      m_norm_workspace);
  }
  // The gradient of each layer's output, and the place for that of its input.
  Matrix from = m_dx, to = m_dy;
  for (std::size_t l = m_layers.size(); l-- > 0; std::swap(from, to))
    m_layers[l].backward(exec, m_x[l], from, to);
  Region region("embedding");
  embedding_backward(exec, ids, from, m_gradient.embedding);
}

}  // namespace kformer
