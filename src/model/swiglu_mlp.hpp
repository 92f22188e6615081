// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/option_checks.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/swiglu_mlp.hpp"
#include "kformer/ops/swiglu.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// Definitions of SwigluMlp's members.

namespace kformer {

namespace Impl {

/// Weights or gradients.
template <class Space, class U>
void require_weights(const char* function, const SwigluMlpConfig& config,
                     const SwigluMlpViews<Space, U>& views) {
  constexpr bool weights = std::is_const_v<U>;
  require_view(function, weights ? "weights.gate" : "gradients.gate", views.gate,
               {config.intermediate_size, config.hidden_size});
  require_view(function, weights ? "weights.up" : "gradients.up", views.up,
               {config.intermediate_size, config.hidden_size});
  require_view(function, weights ? "weights.down" : "gradients.down", views.down,
               {config.hidden_size, config.intermediate_size});
}

}  // namespace Impl

template <class Exec, Scalar T>
SwigluMlp<Exec, T>::SwigluMlp(const SwigluMlpConfig& config, std::int64_t rows, const Weights& weights,
                              Ledger& ledger)
    : m_config(config), m_rows(rows), m_weight(weights) {
  const auto require = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value < least)
      throw DimensionMismatch(std::string("kformer::SwigluMlp: ") + name + " must be at least " +
                              std::to_string(least) + ", got " + std::to_string(value));
  };
  require("hidden_size", config.hidden_size, 1);
  require("intermediate_size", config.intermediate_size, 1);
  require("rows", rows, 0);
  Impl::require_enumerator("SwigluMlp", "mode", config.mode);
  Impl::require_weights("SwigluMlp", config, weights);
  place(ledger);
}

template <class Exec, Scalar T>
void SwigluMlp<Exec, T>::place(Ledger& ledger) {
  const std::int64_t inner = m_config.intermediate_size;
  Arena<memory_space> activations, workspace;
  activations.add(m_gate, m_rows, inner);
  activations.add(m_up, m_rows, inner);
  workspace.add(m_product_workspace, linear_forward_workspace_bytes(Exec()));
  if (m_config.mode == LayerMode::training) {
    // The product is dead when the gradient of the gate comes.
    workspace.overlap([&] { workspace.add(m_product, m_rows, inner); },
                      [&] { workspace.add(m_d_gate, m_rows, inner); });
    workspace.add(m_d_product, m_rows, inner);
    workspace.add(m_d_up, m_rows, inner);
    workspace.add(m_dx, m_rows, m_config.hidden_size);
  }
  m_activation_block = activations.allocate(ledger, MemoryClass::activations, "SwigluMlp::activations");
  m_workspace_block = workspace.allocate(ledger, MemoryClass::workspace, "SwigluMlp::workspace");
  if (m_config.mode == LayerMode::inference) m_product = m_gate;
}

template <class Exec, Scalar T>
void SwigluMlp<Exec, T>::forward(const Exec& exec, const ConstMatrix& x, const Matrix& y) {
  m_guard.require("SwigluMlp", "forward");
  Impl::require_views("SwigluMlp::forward", {{"x", tensor_ref(x)}, {"y", tensor_ref(y)}},
                      {m_rows, m_config.hidden_size});
  Impl::require_output("SwigluMlp::forward", m_config.mode, x, {}, y);
  Impl::require_separate("SwigluMlp::forward", {{"y", tensor_ref(y)}},
                         {{"weights.gate", tensor_ref(m_weight.gate)},
                          {"weights.up", tensor_ref(m_weight.up)},
                          {"weights.down", tensor_ref(m_weight.down)}});
  Impl::require_allocated("SwigluMlp::forward", "the module", m_activation_block.data(),
                          m_activation_block.bytes());
  m_ran_forward = false;
  linear_forward(exec, x, m_weight.gate, m_gate, {}, m_product_workspace);
  linear_forward(exec, x, m_weight.up, m_up, {}, m_product_workspace);
  swiglu_forward(exec, m_gate, m_up, m_product);
  linear_forward(exec, m_product, m_weight.down, y, {}, m_product_workspace);
  m_ran_forward = true;
}

template <class Exec, Scalar T>
void SwigluMlp<Exec, T>::backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy,
                                  const Matrix& dx, const Gradients& gradients) {
  m_guard.require("SwigluMlp", "backward");
  if (m_config.mode != LayerMode::training)
    throw NotSupported(
        "kformer::SwigluMlp::backward: the module was made for inference and keeps nothing for backward; "
        "construct it with LayerMode::training");
  if (!m_ran_forward)
    throw NotSupported("kformer::SwigluMlp::backward: there was no forward; call forward(exec, x, y) first");
  Impl::require_views("SwigluMlp::backward",
                      {{"x", tensor_ref(x)}, {"dy", tensor_ref(dy)}, {"dx", tensor_ref(dx)}},
                      {m_rows, m_config.hidden_size});
  Impl::require_weights("SwigluMlp::backward", m_config, gradients);
  Impl::require_separate("SwigluMlp::backward",
                         {{"dx", tensor_ref(dx)},
                          {"gradients.gate", tensor_ref(gradients.gate)},
                          {"gradients.up", tensor_ref(gradients.up)},
                          {"gradients.down", tensor_ref(gradients.down)}},
                         {{"x", tensor_ref(x)},
                          {"dy", tensor_ref(dy)},
                          {"weights.gate", tensor_ref(m_weight.gate)},
                          {"weights.up", tensor_ref(m_weight.up)},
                          {"weights.down", tensor_ref(m_weight.down)}});
  swiglu_forward(exec, m_gate, m_up, m_product);
  linear_backward_weight(exec, m_product, dy, gradients.down, {}, m_product_workspace);
  linear_backward_input(exec, m_weight.down, dy, m_d_product, {}, m_product_workspace);
  swiglu_backward(exec, m_gate, m_up, m_d_product, m_d_gate, m_d_up);
  linear_backward_weight(exec, x, m_d_gate, gradients.gate, {}, m_product_workspace);
  linear_backward_weight(exec, x, m_d_up, gradients.up, {}, m_product_workspace);
  linear_backward_input(exec, m_weight.gate, m_d_gate, dx, {}, m_product_workspace);
  linear_backward_input(exec, m_weight.up, m_d_up, m_dx, {}, m_product_workspace);
  Impl::add<T>("kformer::SwigluMlp::backward", exec, dx, m_dx);
}

}  // namespace kformer
