// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/region.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/llama_model.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "model/memory.hpp"

/// \file
/// Definitions of LlamaModel's members.

namespace kformer {

template <class Exec, Scalar T>
LlamaModel<Exec, T>::LlamaModel(const LlamaConfig& config, LayerShape shape, const LayerOptions& options,
                                Ledger& ledger)
    : m_config(config), m_shape(shape), m_options(options) {
  config.check_model();
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l)
    m_layers.emplace_back(config, shape, options, ledger, m_layers.empty() ? nullptr : &m_layers.front());
  place_ends(ledger, MemoryClass::weights, m_weight);
  if (options.mode == LayerMode::training) place_ends(ledger, MemoryClass::gradients, m_gradient);
  place_activations(ledger);
  place_workspace(ledger);
}

template <class Exec, Scalar T>
template <class U>
void LlamaModel<Exec, T>::place_ends(Ledger& ledger, MemoryClass memory_class, Ends<U>& ends) const {
  const std::int64_t vocabulary = m_config.vocab_size, hidden = m_config.hidden_size;
  Arena<memory_space> arena;
  arena.add(ends.embedding, vocabulary, hidden);
  arena.add(ends.norm, hidden);
  arena.add(ends.head, m_config.tie_word_embeddings ? 0 : vocabulary, hidden);
  ends.block = arena.allocate(ledger, memory_class, std::string("LlamaModel::") + to_string(memory_class));
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::place_activations(Ledger& ledger) {
  const std::int64_t rows = m_shape.rows(), hidden = m_config.hidden_size;
  Arena<memory_space> arena;
  m_x.resize(m_options.mode == LayerMode::training ? m_layers.size() + 1 : 2);
  for (Matrix& x : m_x) arena.add(x, rows, hidden);
  arena.add(m_hidden, rows, hidden);
  arena.add(m_rstd, rows);
  m_block = arena.allocate(ledger, MemoryClass::activations, "LlamaModel::activations");
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::place_workspace(Ledger& ledger) {
  const std::int64_t rows = m_shape.rows(), hidden = m_config.hidden_size;
  Arena<memory_space> arena;
  arena.add(m_loss_workspace, linear_cross_entropy_workspace_bytes<T>(Exec(), rows, m_config.vocab_size));
  if (m_options.mode == LayerMode::training) {
    arena.add(m_norm_workspace, rms_norm_backward_workspace_bytes<T>(Exec(), rows, hidden));
    arena.add(m_dx, rows, hidden);
    arena.add(m_dy, rows, hidden);
  }
  m_workspace_block = arena.allocate(ledger, MemoryClass::workspace, "LlamaModel::workspace");
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::prepare(const Exec& exec) {
  for (auto& layer : m_layers) layer.prepare(exec);
  Impl::zero_numbers<C>("kformer::LlamaModel::zero_gradients", exec, m_gradient.block);
  m_prepared = true;
}

template <class Exec, Scalar T>
std::vector<Parameter> LlamaModel<Exec, T>::parameters() const {
  const auto gradient = [&](const auto& view) {
    return m_options.mode == LayerMode::training ? tensor_ref(view) : TensorRef{};
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
void LlamaModel<Exec, T>::zero_gradients(const Exec& exec) {
  for (auto& layer : m_layers) layer.zero_gradients(exec);
  Impl::zero_numbers<C>("kformer::LlamaModel::zero_gradients", exec, m_gradient.block);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_prepared(const char* function) const {
  if (!m_prepared)
    throw NotSupported(std::string("kformer::LlamaModel::") + function +
                       ": the rotary tables are empty; call prepare(exec) once, before the first forward");
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_forward(const char* function) const {
  if (!m_has_hidden)
    throw NotSupported(std::string("kformer::LlamaModel::") + function +
                       ": there are no hidden states; call forward(exec, ids) first");
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_saved(Saved saved, const char* function, const char* forward) const {
  if (m_options.mode != LayerMode::training)
    throw NotSupported(std::string("kformer::LlamaModel::") + function +
                       ": the model was made for inference and keeps nothing for backward; "
                       "construct it with LayerMode::training");
  if (m_saved != saved)
    throw NotSupported(std::string("kformer::LlamaModel::") + function + ": it belongs to " + forward +
                       ", once for each call; call " + forward + " first");
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_states(const char* function, const char* role,
                                         const TensorRef& states) const {
  const std::string name = std::string("LlamaModel::") + function;
  Operands(name.c_str(), {{role, states}})
      .require_extents(states.has_extents({m_shape.rows(), m_config.hidden_size}),
                       std::string(role) + " to have " + std::to_string(m_shape.rows()) +
                           " rows (batch x seq_len) and " + std::to_string(m_config.hidden_size) +
                           " columns (hidden_size)")
      .require_unit_stride();
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::forward(const Exec& exec, const Tokens& ids) {
  require_prepared("forward");
  {
    Region region("embedding");
    embedding_forward(exec, ids, m_weight.embedding, m_x[0]);
  }
  run_layers(exec);
  m_saved = Saved::forward;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::forward_embedded(const Exec& exec, const ConstMatrix& x) {
  require_prepared("forward_embedded");
  require_states("forward_embedded", "x", tensor_ref(x));
  Kokkos::deep_copy(exec, m_x[0], x);
  run_layers(exec);
  m_saved = Saved::forward_embedded;
}

// From m_x[0] to m_hidden.
template <class Exec, Scalar T>
void LlamaModel<Exec, T>::run_layers(const Exec& exec) {
  const std::size_t states = m_x.size();
  for (std::size_t l = 0; l < m_layers.size(); ++l)
    m_layers[l].forward(exec, m_x[l % states], m_x[(l + 1) % states]);
  Region region("final_norm");
  rms_norm_forward(exec, m_x[m_layers.size() % states], m_weight.norm, m_hidden, m_rstd,
                   {.eps = m_config.rms_norm_eps});
  m_has_hidden = true;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::logits(const Exec& exec, const Matrix& logits) {
  require_forward("logits");
  linear_forward(exec, m_hidden, head(), logits);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::loss(const Exec& exec, const Tokens& targets, const TokenNumbers& loss,
                               const CrossEntropyOptions& options) {
  require_forward("loss");
  linear_cross_entropy(exec, m_hidden, head(), targets, loss, {.cross_entropy = options}, m_loss_workspace);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::backward(const Exec& exec, const Tokens& ids, const Tokens& targets,
                                   const ConstTokenNumbers& dloss, const TokenNumbers& loss,
                                   const CrossEntropyOptions& options) {
  require_saved(Saved::forward, "backward", "forward");
  const Matrix dx = layer_gradients(exec, targets, dloss, loss, options, nullptr);
  Region region("embedding");
  embedding_backward(exec, ids, dx, m_gradient.embedding);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::backward_embedded(const Exec& exec, const Tokens& targets,
                                            const ConstTokenNumbers& dloss, const TokenNumbers& loss,
                                            const Matrix& dx, const CrossEntropyOptions& options) {
  require_saved(Saved::forward_embedded, "backward_embedded", "forward_embedded");
  require_states("backward_embedded", "dx", tensor_ref(dx));
  layer_gradients(exec, targets, dloss, loss, options, &dx);
}

// From the loss to the gradient of m_x[0], in `dx` or where that is null in an array of the model.
template <class Exec, Scalar T>
typename LlamaModel<Exec, T>::Matrix LlamaModel<Exec, T>::layer_gradients(
    const Exec& exec, const Tokens& targets, const ConstTokenNumbers& dloss, const TokenNumbers& loss,
    const CrossEntropyOptions& options, const Matrix* dx) {
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
                         {.cross_entropy = options}, m_loss_workspace);
  }
  m_saved = Saved::nothing;
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
  // The gradients of a layer's output and of its input take turns in two arrays.
  Matrix from = m_dx, to = m_dy;
  for (std::size_t l = m_layers.size(); l-- > 0; std::swap(from, to)) {
    if (l == 0 && dx) to = *dx;
    m_layers[l].backward(exec, m_x[l], from, to);
  }
  return from;
}

}  // namespace kformer
