// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/core/option_checks.hpp"
#include "kformer/core/region.hpp"
#include "kformer/model/llama_model.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "model/llama_model_gradients.hpp"
#include "model/llama_model_memory.hpp"
#include "model/llama_model_parts.hpp"
#include "model/tensor/slices.hpp"
#include "model/tensor/vocabulary_ranks.hpp"
#include "model/tools/memory.hpp"
#include "model/tools/module_tools.hpp"
#include "model/tools/packed_tokens.hpp"

/// \file
/// Definitions of LlamaModel's members.

namespace kformer {

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::prepare(const Exec& exec) {
  m_guard.require("LlamaModel", "prepare");
  for (auto& layer : m_layers) layer.prepare(exec);
  if (m_options.accumulate) clear_gradients_of_ends(exec);
  m_prepared = true;
}

template <class Exec, Scalar T>
std::vector<Parameter> LlamaModel<Exec, T>::parameters() const {
  m_guard.require("LlamaModel", "parameters");
  const auto gradient = [&](const auto& view) { return trains_ends() ? tensor_ref(view) : TensorRef{}; };
  const auto words = [&](const char* name, const auto& weight, const auto& dweight) {
    Parameter p{name, tensor_ref(weight), gradient(dweight)};
    if (tensor_ranks()) p.slice = {.whole = m_config.vocab_size, .begin = m_vocabulary.words().begin};
    return p;
  };
  std::vector<Parameter> all;
  const bool tied = m_config.tie_word_embeddings;
  if (has_embedding() || (tied && has_head())) {
    all.push_back(words("model.embed_tokens.weight", m_weight.embedding, m_gradient.embedding));
    all.back().tied = tied && has_embedding() != has_head();
    all.back().copy = !has_embedding();
  }
  for (std::size_t l = 0; l < m_layers.size(); ++l)
    for (Parameter p : m_layers[l].parameters()) {
      p.name = layer_prefix(l) + p.name;
      all.push_back(std::move(p));
    }
  if (!has_head()) return all;
  all.push_back({"model.norm.weight", tensor_ref(m_weight.norm), gradient(m_gradient.norm)});
  all.back().partial_gradient = divides_states();
  if (!tied) all.push_back(words("lm_head.weight", m_weight.head, m_gradient.head));
  return all;
}

template <class Exec, Scalar T>
std::vector<WeightSlot> LlamaModel<Exec, T>::weights() const {
  m_guard.require("LlamaModel", "weights");
  std::vector<WeightSlot> all;
  for (const Parameter& p : parameters()) all.push_back({p.name, p.weight, {}, p.slice});
  for (std::size_t l = 0; l < m_layers.size(); ++l)
    for (const WeightSlot& slot : m_layers[l].weights())
      if (slot.is_quantized()) all.push_back({layer_prefix(l) + slot.name, {}, slot.quantized, slot.slice});
  return all;
}

template <class Exec, Scalar T>
std::vector<Parameter> LlamaModel<Exec, T>::adapters() const {
  m_guard.require("LlamaModel", "adapters");
  std::vector<Parameter> all;
  for (std::size_t l = 0; l < m_layers.size(); ++l)
    for (Parameter p : m_layers[l].adapters()) {
      p.name = layer_prefix(l) + p.name;
      all.push_back(std::move(p));
    }
  return all;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::merge_adapters(const Exec& exec) {
  m_guard.require("LlamaModel", "merge_adapters");
  for (auto& layer : m_layers) layer.merge_adapters(exec);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::reset_magnitudes(const Exec& exec) {
  m_guard.require("LlamaModel", "reset_magnitudes");
  for (auto& layer : m_layers) layer.reset_magnitudes(exec);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::use_adapters(AdapterUse use) {
  m_guard.require("LlamaModel", "use_adapters");
  if (!adapts() || use == m_adapter_use) return;
  for (auto& layer : m_layers) layer.use_adapters(use);
  m_adapter_use = use;
  for (Pass& pass : m_passes) pass = {};
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::set_dropout(const std::optional<DropoutDraw>& draw) {
  m_guard.require("LlamaModel", "set_dropout");
  Impl::on_behalf_of("LlamaModel", [&] {
    for (std::size_t l = 0; l < m_layers.size(); ++l)
      m_layers[l].set_dropout(draw, m_part.begin + static_cast<std::int64_t>(l));
  });
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_prepared(const char* function) const {
  m_guard.require("LlamaModel", function);
  if (!m_prepared)
    throw NotSupported(std::string("kformer::LlamaModel::") + function +
                       ": the rotary tables are empty; call prepare(exec) once, before the first forward");
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_forward(const char* function) const {
  m_guard.require("LlamaModel", function);
  if (!m_passes[m_slot].has_hidden)
    throw NotSupported(std::string("kformer::LlamaModel::") + function +
                       ": there are no hidden states; call forward(exec, ids) first");
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_saved(Saved saved, const char* function, const char* forward) const {
  m_guard.require("LlamaModel", function);
  if (!trains())
    throw NotSupported(std::string("kformer::LlamaModel::") + function +
                       ": the model was made for inference and keeps nothing for backward; "
                       "construct it with LayerMode::training");
  if (adapts() && !uses_adapters())
    throw NotSupported(std::string("kformer::LlamaModel::") + function +
                       ": the adapters are switched off, and nothing else has a gradient; call "
                       "use_adapters(AdapterUse::on) and " +
                       forward + " first");
  if (m_passes[m_slot].saved != saved)
    throw NotSupported(std::string("kformer::LlamaModel::") + function + ": each " + forward + " allows one " +
                       function + "; call " + forward + " first");
  // The caller may have changed what forward was given.
  require_packed(function, m_passes[m_slot].packed);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_packed(const char* function, const PackedTokens<memory_space>& packed) const {
  Impl::require_packed<Exec>((std::string("LlamaModel::") + function).c_str(), m_options, m_shape.rows(),
                             packed);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_states(const char* function, const char* role,
                                         const TensorRef& states) const {
  const std::string name = std::string("LlamaModel::") + function;
  Operands(name.c_str(), {{role, states}})
      .require_extents(states.has_extents({state_rows(), m_config.hidden_size}),
                       std::string(role) + " to have " + std::to_string(state_rows()) +
                           " rows (batch x seq_len) and " + std::to_string(m_config.hidden_size) +
                           " columns (hidden_size)")
      .require_unit_stride()
      .require_addresses();
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::forward(const Exec& exec, const Tokens& ids,
                                  const PackedTokens<memory_space>& packed) {
  require_prepared("forward");
  if (!has_embedding())
    throw NotSupported("kformer::LlamaModel::forward: a part that begins with layer " +
                       std::to_string(m_part.begin) + " has no embedding; call forward_embedded");
  Impl::require_arrays("LlamaModel::forward", {{"ids", tensor_ref(ids)}}, {m_shape.rows()});
  require_packed("forward", packed);
  m_passes[m_slot] = {};
  {
    Region region("embedding");
    m_vocabulary.embed(exec, ids, m_weight.embedding, m_kept.front());
  }
  run_layers(exec, packed);
  m_passes[m_slot].saved = Saved::forward;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::forward_embedded(const Exec& exec, const ConstMatrix& x,
                                           const PackedTokens<memory_space>& packed) {
  require_prepared("forward_embedded");
  require_packed("forward_embedded", packed);
  require_states("forward_embedded", "x", tensor_ref(x));
  m_passes[m_slot] = {};
  Kokkos::deep_copy(exec, m_kept.front(), x);
  run_layers(exec, packed);
  m_passes[m_slot].saved = Saved::forward_embedded;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::run_layer(const Exec& exec, std::int64_t l, const Matrix& x, const Matrix& y) {
  const auto i = static_cast<std::size_t>(l);
  if (m_offload_index[i] >= 0) m_offloaded.save(exec, m_offload_index[i], x.data());
  m_layers[i].forward(exec, x, y, m_passes[m_slot].packed);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::reverse_layer(const Exec& exec, std::int64_t l, const Matrix& x, const Matrix& dy,
                                        const Matrix& dx) {
  const auto i = static_cast<std::size_t>(l);
  if (const std::int64_t n = m_offload_index[i]; n >= 0)
    m_offloaded.fetch(exec, n, x.data(), n > 0 ? m_chain.offloaded(n - 1).data() : nullptr);
  m_layers[i].backward(exec, x, dy, dx, m_passes[m_slot].packed);
  if (!m_options.split_backward) layer_is_ready(exec, i);
}

// From the input of the first layer to m_hidden.
template <class Exec, Scalar T>
void LlamaModel<Exec, T>::run_layers(const Exec& exec, const PackedTokens<memory_space>& packed) {
  m_passes[m_slot].packed = packed;
  if (trains())
    m_chain.forward([&](std::int64_t l, const Matrix& x, const Matrix& y) { run_layer(exec, l, x, y); }, m_last,
                    m_hidden);
  else
    for (std::size_t l = 0; l < m_layers.size(); ++l)
      m_layers[l].forward(exec, m_kept[l % 2], m_kept[(l + 1) % 2], packed);
  m_passes[m_slot].has_hidden = true;
  if (!has_head()) return;
  Region region("final_norm");
  rms_norm_forward(exec, m_last, m_weight.norm, m_hidden, m_rstd, {.eps = m_config.rms_norm_eps});
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::logits(const Exec& exec, const Matrix& logits) {
  require_head("logits", true);
  require_forward("logits");
  Impl::require_view("LlamaModel::logits", "logits", logits, {m_shape.rows(), m_config.vocab_size});
  m_vocabulary.logits(exec, m_vocabulary.whole(exec, m_hidden), head(), logits, m_options.batch_invariant);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::logits(const Exec& exec, std::int64_t token, const Matrix& logits) {
  require_head("logits", true);
  require_forward("logits");
  if (token < 0 || token >= m_shape.rows())
    throw DimensionMismatch("kformer::LlamaModel::logits: token " + std::to_string(token) + " is outside the " +
                            std::to_string(m_shape.rows()) + " tokens of the model; expected 0 to " +
                            std::to_string(m_shape.rows() - 1));
  Impl::require_view("LlamaModel::logits", "logits", logits, {1, m_config.vocab_size});
  const auto row = static_cast<std::size_t>(token);
  const Matrix hidden =
      Kokkos::subview(m_vocabulary.whole(exec, m_hidden), std::pair(row, row + 1), Kokkos::ALL);
  m_vocabulary.logits(exec, hidden, head(), logits, m_options.batch_invariant);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::loss(const Exec& exec, const Tokens& targets, const TokenNumbers& loss,
                               const CrossEntropyOptions& options) {
  require_head("loss", true);
  require_forward("loss");
  Impl::require_arrays("LlamaModel::loss", {{"targets", tensor_ref(targets)}, {"loss", tensor_ref(loss)}},
                       {m_shape.rows()});
  m_vocabulary.loss(exec, {.x = m_hidden, .weight = head(), .targets = targets, .loss = loss},
                    loss_options(options), m_loss_workspace);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::backward(const Exec& exec, const Tokens& ids, const Tokens& targets,
                                   const ConstTokenNumbers& dloss, const TokenNumbers& loss,
                                   const CrossEntropyOptions& options) {
  require_head("backward", true);
  require_saved(Saved::forward, "backward", "forward");
  Impl::require_arrays("LlamaModel::backward",
                       {{"ids", tensor_ref(ids)},
                        {"targets", tensor_ref(targets)},
                        {"dloss", tensor_ref(dloss)},
                        {"loss", tensor_ref(loss)}},
                       {m_shape.rows()});
  embedding_gradient(exec, ids, layer_gradients(exec, targets, dloss, loss, options, nullptr));
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::embedding_gradient(const Exec& exec, const Tokens& ids, const Matrix& dx) {
  if (adapts()) return;
  {
    Region region("embedding");
    if (ends_take_turns()) clear_gradients_of_ends(exec);
    m_vocabulary.embed_backward(exec, ids, dx, m_gradient.embedding);
  }
  gradients_are_ready(exec, m_layers.size() + (has_head() ? 1 : 0));
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::backward_embedded(const Exec& exec, const Tokens& targets,
                                            const ConstTokenNumbers& dloss, const TokenNumbers& loss,
                                            const Matrix& dx, const CrossEntropyOptions& options) {
  require_head("backward_embedded", true);
  require_saved(Saved::forward_embedded, "backward_embedded", "forward_embedded");
  require_states("backward_embedded", "dx", tensor_ref(dx));
  Impl::require_arrays(
      "LlamaModel::backward_embedded",
      {{"targets", tensor_ref(targets)}, {"dloss", tensor_ref(dloss)}, {"loss", tensor_ref(loss)}},
      {m_shape.rows()});
  layer_gradients(exec, targets, dloss, loss, options, &dx);
}

// From the loss to the gradient of the first layer's input, in `dx` or where that is null in an array of the model.
template <class Exec, Scalar T>
typename LlamaModel<Exec, T>::Matrix LlamaModel<Exec, T>::layer_gradients(
    const Exec& exec, const Tokens& targets, const ConstTokenNumbers& dloss, const TokenNumbers& loss,
    const CrossEntropyOptions& options, const Matrix* dx) {
  begin_gradients_of_ends(exec);
  {
    Region region("loss");
    m_vocabulary.loss(exec,
                      {.x = m_hidden,
                       .weight = head(),
                       .targets = targets,
                       .dloss = dloss,
                       .loss = loss,
                       .dx = m_dy,
                       .dweight = head_gradient()},
                      loss_options(options), m_loss_workspace);
  }
  {
    Region region("final_norm");
    rms_norm_backward(exec,
                      RmsNormBackwardOperands{.x = m_last,
                                              .weight = m_weight.norm,
                                              .rstd = m_rstd,
                                              .dy = m_dy,
                                              .dx = m_dx,
                                              .dweight = m_gradient.norm},
                      m_norm_workspace);
  }
  if (!adapts()) gradients_are_ready(exec, 0);
  return reverse_layers(exec, dx);
}

// From the gradient of the last layer's output in m_dx.
template <class Exec, Scalar T>
typename LlamaModel<Exec, T>::Matrix LlamaModel<Exec, T>::reverse_layers(const Exec& exec, const Matrix* dx) {
  // Nested layers compute states again in the array of the hidden ones; what is allowed must not depend on the schedule.
  m_passes[m_slot].saved = Saved::nothing;
  m_passes[m_slot].has_hidden = false;
  const Matrix first =
      m_chain.backward([&](std::int64_t l, const Matrix& x, const Matrix& y) { run_layer(exec, l, x, y); },
                       [&](std::int64_t l, const Matrix& x, const Matrix& dy, const Matrix& dx_of_layer) {
                         reverse_layer(exec, l, x, dy, dx_of_layer);
                       },
                       m_dx, m_dy, m_hidden, dx);
  m_passes[m_slot].weights_wait = m_options.split_backward;
  return first;
}

}  // namespace kformer
