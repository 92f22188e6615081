// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/model/llama_model.hpp"
#include "model/tools/memory.hpp"

/// \file
/// Definitions of LlamaModel's members that clear gradients and say when they are complete.

namespace kformer {

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::zero_gradients(const Exec& exec) {
  m_guard.require("LlamaModel", "zero_gradients");
  for (auto& layer : m_layers) layer.zero_gradients(exec);
  if (m_options.accumulate || keeps_embedding_gradient()) clear_gradients_of_ends(exec);
}

// Of one backward.
template <class Exec, Scalar T>
void LlamaModel<Exec, T>::begin_gradients_of_ends(const Exec& exec) {
  if (keeps_embedding_gradient())
    Kokkos::deep_copy(exec, m_gradient.norm, C(0));
  else if (!m_options.accumulate)
    clear_gradients_of_ends(exec);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::clear_gradients_of_ends(const Exec& exec) {
  if (adapts() || m_gradient.block.bytes() == 0) return;
  Impl::zero_numbers("LlamaModel::zero_gradients", exec, m_gradient.block.template at<C>(0),
                     m_gradient.block.bytes());
}

template <class Exec, Scalar T>
std::vector<ParameterGroup> LlamaModel<Exec, T>::gradient_groups() const {
  m_guard.require("LlamaModel", "gradient_groups");
  const bool tied = m_config.tie_word_embeddings, ends = !adapts();
  std::size_t end = ends && (has_embedding() || (tied && has_head())) ? 1 : 0;  // behind the embedding
  std::vector<ParameterGroup> groups;
  if (end > 0) groups.push_back({0, end});
  for (const auto& layer : m_layers) {
    const std::size_t begin = end;
    end += adapts() ? layer.adapters().size() : layer.parameters().size();
    groups.push_back({begin, end});
  }
  if (ends && has_head()) groups.push_back({end, end + (tied ? 1 : 2)});
  std::ranges::reverse(groups);
  return groups;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::on_gradients(std::function<void(const Exec&, std::size_t)> ready) {
  m_guard.require("LlamaModel", "on_gradients");
  m_gradients_ready = std::move(ready);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::gradients_are_ready(const Exec& exec, std::size_t group) const {
  if (m_gradients_ready) m_gradients_ready(exec, group);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::layer_is_ready(const Exec& exec, std::size_t l) const {
  gradients_are_ready(exec, m_layers.size() - l - (adapts() || !has_head() ? 1 : 0));
}

}  // namespace kformer
