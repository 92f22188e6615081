// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/region.hpp"
#include "kformer/model/llama_model.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// Definitions of LlamaModel's members for stages of a pipeline: parts of a model, and several micro-batches.

namespace kformer {

namespace Impl {

/// With the end as a number.
inline ModelPart checked_part(const LlamaConfig& config, ModelPart part) {
  config.check_model();
  if (part.end == -1) part.end = config.num_hidden_layers;
  if (part.begin < 0 || part.begin >= part.end || part.end > config.num_hidden_layers)
    throw DimensionMismatch("kformer::LlamaModel: there are no layers [" + std::to_string(part.begin) + ", " +
                            std::to_string(part.end) + ") in a model of " +
                            std::to_string(config.num_hidden_layers));
  return part;
}

}  // namespace Impl

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::use_slot(std::int64_t slot) {
  m_guard.require("LlamaModel", "use_slot");
  if (slot < 0 || slot >= std::ssize(m_passes))
    throw NotSupported("kformer::LlamaModel::use_slot: there is no slot " + std::to_string(slot) +
                       ", only 0 to " + std::to_string(m_passes.size() - 1) + " (LayerOptions::slots)");
  if (static_cast<std::size_t>(slot) == m_slot) return;
  m_slot = static_cast<std::size_t>(slot);
  bind_activations();
  for (auto& layer : m_layers) layer.use_slot(slot);
}

// `wanted`: whether the call is for a part with the head, or for one without.
template <class Exec, Scalar T>
void LlamaModel<Exec, T>::require_head(const char* function, bool wanted) const {
  if (has_head() == wanted) return;
  throw NotSupported(std::string("kformer::LlamaModel::") + function + ": layers [" +
                     std::to_string(m_part.begin) + ", " + std::to_string(m_part.end) + ") are a part " +
                     (wanted ? "without the head; the last part of the model has it"
                             : "with the head; pass targets to `backward`"));
}

template <class Exec, Scalar T>
const typename LlamaModel<Exec, T>::Matrix& LlamaModel<Exec, T>::states() const {
  require_head("states", false);
  require_forward("states");
  return m_last;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::backward_states(const Exec& exec, const Tokens& ids, const ConstMatrix& dy) {
  require_head("backward_states", false);
  require_saved(Saved::forward, "backward_states", "forward");
  Impl::require_arrays("LlamaModel::backward_states", {{"ids", tensor_ref(ids)}}, {m_shape.rows()});
  require_states("backward_states", "dy", tensor_ref(dy));
  begin_gradients_of_ends(exec);
  Kokkos::deep_copy(exec, m_dx, dy);
  embedding_gradient(exec, ids, reverse_layers(exec, nullptr));
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::backward_states_embedded(const Exec& exec, const ConstMatrix& dy, const Matrix& dx) {
  require_head("backward_states_embedded", false);
  require_saved(Saved::forward_embedded, "backward_states_embedded", "forward_embedded");
  require_states("backward_states_embedded", "dy", tensor_ref(dy));
  require_states("backward_states_embedded", "dx", tensor_ref(dx));
  Kokkos::deep_copy(exec, m_dx, dy);
  reverse_layers(exec, &dx);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::backward_weights(const Exec& exec) {
  m_guard.require("LlamaModel", "backward_weights");
  if (!m_options.split_backward)
    throw NotSupported(
        "kformer::LlamaModel::backward_weights: backward has made these gradients; set "
        "LayerOptions::split_backward");
  bool& wait = m_passes[m_slot].weights_wait;
  if (!wait)
    throw NotSupported(
        "kformer::LlamaModel::backward_weights: each backward allows one backward_weights; call forward and "
        "backward first");
  wait = false;
  Region region("weights");
  for (std::size_t l = m_layers.size(); l-- > 0;) {
    m_layers[l].backward_weights(exec, m_chain.kept(static_cast<std::int64_t>(l)));
    layer_is_ready(exec, l);
  }
}

}  // namespace kformer
