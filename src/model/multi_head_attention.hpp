// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/core/option_checks.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/multi_head_attention.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/impl/flash_backward.hpp"
#include "kformer/ops/rope.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// Definitions of MultiHeadAttention's members.

namespace kformer {

namespace Impl {

/// (batch, seq, heads, head_dim) as the rows of a matrix.
template <class Space, class T>
BlockMatrix<Space, T> rows_of_heads(
    const Kokkos::View<T****, Kokkos::LayoutRight, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>& heads) {
  const std::size_t rows = heads.extent(0) * heads.extent(1), columns = heads.extent(2) * heads.extent(3);
  return BlockMatrix<Space, T>(heads.data(), Kokkos::LayoutStride(rows, columns, columns, 1));
}

}  // namespace Impl

template <class Exec, Scalar T>
MultiHeadAttention<Exec, T>::MultiHeadAttention(const MultiHeadAttentionConfig& config,
                                                const MultiHeadAttentionShape& shape, const Weights& weights,
                                                Ledger& ledger)
    : m_config(config.checked()), m_shape(shape), m_weight(weights) {
  Impl::require_not_negative(
      "MultiHeadAttention",
      {{"batch", shape.batch}, {"seq_len", shape.seq_len}, {"context_len", shape.context_len}});
  if (m_shape.context_len == 0) m_shape.context_len = m_shape.seq_len;
  Impl::require_enumerator("MultiHeadAttention", "mode", m_config.mode);
  if (m_config.rope) Impl::check_rope_options(Operands("MultiHeadAttention", {}), *m_config.rope);
  check_views("MultiHeadAttention", m_weight);
  place(ledger);
}

// Weights or gradients; the biases of gradients are those of the weights.
template <class Exec, Scalar T>
template <class U>
void MultiHeadAttention<Exec, T>::check_views(const char* function,
                                              const MultiHeadAttentionViews<memory_space, U>& views) const {
  const std::int64_t hidden = m_config.hidden_size, context = m_config.context_size,
                     queries = m_config.num_attention_heads * m_config.head_dim,
                     keys = m_config.num_key_value_heads * m_config.head_dim;
  const auto require = [&](const std::string& name, const auto& view,
                           std::initializer_list<std::int64_t> extents) {
    const std::string role = (std::is_const_v<U> ? "weights." : "gradients.") + name;
    Impl::require_view(function, role.c_str(), view, extents);
  };
  const auto require_bias = [&](const char* name, const auto& bias, const auto& weight_bias,
                                std::int64_t size) {
    if (Impl::is_given(weight_bias))
      require(name, bias, {size});
    else if (Impl::is_given(bias))
      throw DimensionMismatch(std::string("kformer::") + function + ": gradients." + name +
                              " was given, but the module was made without weights." + name + "; leave it out");
  };
  require("q", views.q, {queries, hidden});
  require("k", views.k, {keys, context});
  require("v", views.v, {keys, context});
  require("o", views.o, {hidden, queries});
  require_bias("q_bias", views.q_bias, m_weight.q_bias, queries);
  require_bias("k_bias", views.k_bias, m_weight.k_bias, keys);
  require_bias("v_bias", views.v_bias, m_weight.v_bias, keys);
  require_bias("o_bias", views.o_bias, m_weight.o_bias, hidden);
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::place(Ledger& ledger) {
  const std::int64_t batch = m_shape.batch, seq = m_shape.seq_len, context = m_shape.context_len,
                     heads = m_config.num_attention_heads, kv_heads = m_config.num_key_value_heads,
                     dim = m_config.head_dim;
  Arena<memory_space> tables, activations, workspace;
  if (m_config.rope) {
    tables.add(m_cos, seq, dim / 2);
    tables.add(m_sin, seq, dim / 2);
  }
  const auto add_heads = [&](auto& arena, Heads& q, Heads& k, Heads& v, Heads& out) {
    arena.add(q, batch, seq, heads, dim);
    arena.add(k, batch, context, kv_heads, dim);
    arena.add(v, batch, context, kv_heads, dim);
    arena.add(out, batch, seq, heads, dim);
  };
  add_heads(activations, m_q, m_k, m_v, m_attended);
  activations.add(m_lse, batch, heads, seq);
  workspace.add(m_product_workspace, linear_forward_workspace_bytes(Exec()));
  workspace.add(m_attention_workspace,
                Impl::on_behalf_of("MultiHeadAttention", [&] { return attention_workspace_bytes(); }));
  if (m_config.mode == LayerMode::training) {
    add_heads(workspace, m_dq, m_dk, m_dv, m_d_attended);
    workspace.add(m_d_keys, m_shape.context_rows(), m_config.context_size);
    workspace.add(m_d_values, m_shape.context_rows(), m_config.context_size);
  }
  m_table_block = tables.allocate(ledger, MemoryClass::weights, "MultiHeadAttention::rope_tables");
  m_activation_block =
      activations.allocate(ledger, MemoryClass::activations, "MultiHeadAttention::activations");
  m_workspace_block = workspace.allocate(ledger, MemoryClass::workspace, "MultiHeadAttention::workspace");
}

template <class Exec, Scalar T>
std::size_t MultiHeadAttention<Exec, T>::attention_workspace_bytes() const {
  const AttentionShape shape{dtype_of<T>,
                             m_shape.batch,
                             m_shape.seq_len,
                             m_shape.context_len,
                             m_config.num_attention_heads,
                             m_config.num_key_value_heads,
                             m_config.head_dim,
                             m_config.head_dim};
  const std::size_t forward = attention_forward_workspace_bytes(Exec(), shape, m_config.attention);
  if (m_config.mode == LayerMode::inference) return forward;
  // Functors may run in the portable kernel, whatever is best without one.
  const auto problem = Impl::planned_attention_backward(shape, m_config.attention, {}, {});
  return std::max({forward, attention_backward_workspace_bytes(Exec(), shape, m_config.attention),
                   Impl::attention_backward_workspace(problem)});
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::prepare(const Exec& exec) {
  m_guard.require("MultiHeadAttention", "prepare");
  if (m_config.rope) rope_tables(exec, m_cos, m_sin, *m_config.rope);
  m_prepared = true;
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::forward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& context,
                                          const Matrix& y) {
  project(exec, x, context, y);
  attention_forward(exec, m_q, m_k, m_v, m_attended, m_lse, m_config.attention, {}, m_attention_workspace);
  finish(exec, x, context, y);
  m_with_functor = false;
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::require_tokens(const char* function, const ConstMatrix& x,
                                                 const ConstMatrix& context) const {
  Impl::require_view(function, "x", x, {m_shape.rows(), m_config.hidden_size});
  const bool own_context = context.data() == x.data() && context.extent(0) == x.extent(0);
  if (own_context &&
      (m_shape.context_rows() != m_shape.rows() || m_config.context_size != m_config.hidden_size))
    throw DimensionMismatch(std::string("kformer::") + function + ": the module was made for a context of " +
                            std::to_string(m_shape.context_len) + " tokens with " +
                            std::to_string(m_config.context_size) + " features; pass the context");
  Impl::require_view(function, "context", context, {m_shape.context_rows(), m_config.context_size});
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::project(const Exec& exec, const ConstMatrix& x, const ConstMatrix& weight,
                                          const StridedVector<memory_space, const T>& bias,
                                          const Matrix& y) const {
  Impl::affine(exec, x, weight, bias, y, m_product_workspace,
               {.batch_invariant = m_config.attention.batch_invariant});
}

// Queries of x, keys and values of the context.
template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::project(const Exec& exec, const ConstMatrix& x, const ConstMatrix& context,
                                          const Matrix& y) {
  m_guard.require("MultiHeadAttention", "forward");
  if (m_config.rope && !m_prepared)
    throw NotSupported(
        "kformer::MultiHeadAttention::forward: the rotary tables are empty; call prepare(exec) once, before "
        "the first forward");
  if (m_config.rope && m_shape.context_len != m_shape.seq_len)
    throw NotSupported(
        "kformer::MultiHeadAttention::forward: a rotary embedding needs a context as long as x, got " +
        std::to_string(m_shape.context_len) + " and " + std::to_string(m_shape.seq_len) +
        " tokens; leave `rope` out for cross-attention");
  require_tokens("MultiHeadAttention::forward", x, context);
  Impl::require_view("MultiHeadAttention::forward", "y", y, {m_shape.rows(), m_config.hidden_size});
  const bool own_context = context.data() == x.data();
  Impl::require_output("MultiHeadAttention::forward", m_config.mode, x,
                       own_context ? TensorRef{} : tensor_ref(context), y);
  Impl::require_separate("MultiHeadAttention::forward", {{"y", tensor_ref(y)}},
                         {{"weights.q", tensor_ref(m_weight.q)},
                          {"weights.k", tensor_ref(m_weight.k)},
                          {"weights.v", tensor_ref(m_weight.v)},
                          {"weights.o", tensor_ref(m_weight.o)},
                          {"weights.q_bias", tensor_ref(m_weight.q_bias)},
                          {"weights.k_bias", tensor_ref(m_weight.k_bias)},
                          {"weights.v_bias", tensor_ref(m_weight.v_bias)},
                          {"weights.o_bias", tensor_ref(m_weight.o_bias)}});
  Impl::require_allocated("MultiHeadAttention::forward", "the module", m_activation_block.data(),
                          m_activation_block.bytes());
  m_saved = Saved::nothing;
  project(exec, x, m_weight.q, m_weight.q_bias, Impl::rows_of_heads(m_q));
  project(exec, context, m_weight.k, m_weight.k_bias, Impl::rows_of_heads(m_k));
  project(exec, context, m_weight.v, m_weight.v_bias, Impl::rows_of_heads(m_v));
  if (m_config.rope) rope_forward(exec, m_q, m_k, m_cos, m_sin, 0, m_config.rope->layout);
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::finish(const Exec& exec, const ConstMatrix& x, const ConstMatrix& context,
                                         const Matrix& y) {
  project(exec, Impl::rows_of_heads(m_attended), m_weight.o, m_weight.o_bias, y);
  m_saved = context.data() == x.data() ? Saved::self : Saved::context;
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy,
                                           const Matrix& dx, const Gradients& gradients) {
  const BackwardOperands operands{x, x, dy, dx, m_d_keys, gradients};
  begin_backward(exec, operands, false);
  attention_gradient(exec);
  finish_backward(exec, operands);
  add_context_gradient(exec, dx);
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::add_context_gradient(const Exec& exec, const Matrix& dx) {
  Impl::add<T>("kformer::MultiHeadAttention::backward", exec, dx, m_d_keys);
}

template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::backward(const Exec& exec, const BackwardOperands& operands) {
  begin_backward(exec, operands, false);
  attention_gradient(exec);
  finish_backward(exec, operands);
}

// Before the first launch: what is accumulated cannot be taken back.
template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::require_gradients(const BackwardOperands& operands) const {
  const auto& [x, context, dy, dx, dcontext, gradients] = operands;
  const char* function = "MultiHeadAttention::backward";
  require_tokens(function, x, context);
  Impl::require_views(function, {{"dy", tensor_ref(dy)}, {"dx", tensor_ref(dx)}},
                      {m_shape.rows(), m_config.hidden_size});
  Impl::require_view(function, "dcontext", dcontext, {m_shape.context_rows(), m_config.context_size});
  check_views(function, gradients);
  const bool self = dcontext.data() == m_d_keys.data();
  Impl::require_separate(function,
                         {{"dx", tensor_ref(dx)},
                          {"dcontext", self ? TensorRef{} : tensor_ref(dcontext)},
                          {"gradients.q", tensor_ref(gradients.q)},
                          {"gradients.k", tensor_ref(gradients.k)},
                          {"gradients.v", tensor_ref(gradients.v)},
                          {"gradients.o", tensor_ref(gradients.o)},
                          {"gradients.q_bias", tensor_ref(gradients.q_bias)},
                          {"gradients.k_bias", tensor_ref(gradients.k_bias)},
                          {"gradients.v_bias", tensor_ref(gradients.v_bias)},
                          {"gradients.o_bias", tensor_ref(gradients.o_bias)}},
                         {{"x", tensor_ref(x)},
                          {"context", self ? TensorRef{} : tensor_ref(context)},
                          {"dy", tensor_ref(dy)},
                          {"weights.q", tensor_ref(m_weight.q)},
                          {"weights.k", tensor_ref(m_weight.k)},
                          {"weights.v", tensor_ref(m_weight.v)},
                          {"weights.o", tensor_ref(m_weight.o)},
                          {"weights.q_bias", tensor_ref(m_weight.q_bias)},
                          {"weights.k_bias", tensor_ref(m_weight.k_bias)},
                          {"weights.v_bias", tensor_ref(m_weight.v_bias)},
                          {"weights.o_bias", tensor_ref(m_weight.o_bias)}});
}

// From dy to the gradient of what attention returned.
template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::begin_backward(const Exec& exec, const BackwardOperands& operands,
                                                 bool with_functor) {
  m_guard.require("MultiHeadAttention", "backward");
  if (m_config.mode != LayerMode::training)
    throw NotSupported(
        "kformer::MultiHeadAttention::backward: the module was made for inference and has no workspace for "
        "backward; construct it with LayerMode::training");
  const auto refuse = [](const char* reason) {
    throw NotSupported(std::string("kformer::MultiHeadAttention::backward: ") + reason);
  };
  if (m_saved == Saved::nothing) refuse("there was no forward; call forward(exec, x, y) first");
  require_gradients(operands);
  if (const bool self = operands.context.data() == operands.x.data(); self && m_saved == Saved::context)
    refuse("forward had a context; pass the operands with context and dcontext");
  else if (!self && m_saved == Saved::self)
    refuse("forward had no context; pass backward(exec, x, dy, dx, gradients)");
  if (m_with_functor != with_functor)
    refuse(m_with_functor ? "forward had a functor; pass it to backward too"
                          : "forward had no functor; leave it out of backward too");
  Impl::affine_gradients(exec, Impl::rows_of_heads(m_attended), operands.dy, operands.gradients.o,
                         operands.gradients.o_bias, m_product_workspace);
  linear_backward_input(exec, m_weight.o, operands.dy, Impl::rows_of_heads(m_d_attended), {},
                        m_product_workspace);
}

// From the gradients of queries, keys and values to those of x and of the context.
template <class Exec, Scalar T>
void MultiHeadAttention<Exec, T>::finish_backward(const Exec& exec, const BackwardOperands& operands) {
  const auto& [x, context, dy, dx, dcontext, gradients] = operands;
  if (m_config.rope) rope_backward(exec, m_dq, m_dk, m_cos, m_sin, 0, m_config.rope->layout);
  const Matrix dq = Impl::rows_of_heads(m_dq), dk = Impl::rows_of_heads(m_dk), dv = Impl::rows_of_heads(m_dv);
  Impl::affine_gradients(exec, x, dq, gradients.q, gradients.q_bias, m_product_workspace);
  Impl::affine_gradients(exec, context, dk, gradients.k, gradients.k_bias, m_product_workspace);
  Impl::affine_gradients(exec, context, dv, gradients.v, gradients.v_bias, m_product_workspace);
  linear_backward_input(exec, m_weight.q, dq, dx, {}, m_product_workspace);
  linear_backward_input(exec, m_weight.k, dk, dcontext, {}, m_product_workspace);
  linear_backward_input(exec, m_weight.v, dv, m_d_values, {}, m_product_workspace);
  Impl::add<T>("kformer::MultiHeadAttention::backward", exec, dcontext, m_d_values);
}

}  // namespace kformer
