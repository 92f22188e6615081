// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/region.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu.hpp"
#include "model/decoder_layer_memory.hpp"
#include "model/decoder_layer_split.hpp"
#include "model/tensor/layer_ranks.hpp"
#include "model/tools/head_views.hpp"
#include "model/tools/module_tools.hpp"
#include "model/tools/packed_tokens.hpp"

/// \file
/// Definitions of DecoderLayer's members.

namespace kformer {

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::prepare(const Exec& exec) {
  m_guard.require("DecoderLayer", "prepare");
  if (!m_shared->tables_filled) rope_tables(exec, m_cos, m_sin, m_config.rope);
  m_shared->tables_filled = true;
  zero_gradients(exec);
  m_prepared = true;
}

template <class Exec, Scalar T>
std::vector<Parameter> DecoderLayer<Exec, T>::parameters() const {
  m_guard.require("DecoderLayer", "parameters");
  auto all = layer_parameters(m_config, m_weight, trains() && !adapts() ? &m_gradient : nullptr);
  Impl::mark_slices(m_options, all);
  return all;
}

template <class Exec, Scalar T>
std::vector<WeightSlot> DecoderLayer<Exec, T>::weights() const {
  m_guard.require("DecoderLayer", "weights");
  std::vector<WeightSlot> all;
  for (const Parameter& p : parameters()) all.push_back({p.name, p.weight, {}, p.slice});
  for (const auto* split :
       {&m_weight.qkv_split, &m_weight.out_split, &m_weight.gate_up_split, &m_weight.down_split})
    for (const auto& w : *split)
      if (w.format) {
        all.push_back({w.name, {}, w.quantized()});
        if (Impl::divides(m_options)) Impl::mark_slice(*m_options.tensor, all.back());
      }
  return all;
}

template <class Exec, Scalar T>
std::vector<Parameter> DecoderLayer<Exec, T>::adapters() const {
  m_guard.require("DecoderLayer", "adapters");
  auto all = adapter_parameters(m_adapter, trains() ? &m_adapter_gradient : nullptr,
                                m_options.lora.learning_rate_ratio);
  if (Impl::divides(m_options)) Impl::mark_adapter_slices(*m_options.tensor, all);
  return all;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::merge_adapters(const Exec& exec) {
  m_guard.require("DecoderLayer", "merge_adapters");
  if (!adapts()) return;
  Impl::require_dense_weights(m_options);
  qkv_map().merge(exec);
  out_map().merge(exec);
  gate_up_map().merge(exec);
  down_map().merge(exec);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::reset_magnitudes(const Exec& exec) {
  m_guard.require("DecoderLayer", "reset_magnitudes");
  if (!has_magnitudes()) return;
  qkv_map().reset_magnitudes(exec);
  out_map().reset_magnitudes(exec);
  gate_up_map().reset_magnitudes(exec);
  down_map().reset_magnitudes(exec);
}

// Maps without adapters have no gains.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::update_gains(const Exec& exec) {
  Region region("gains");
  const auto update = [&](const auto& map) {
    if (map.magnitudes.any()) map.update_gains(exec);
  };
  update(qkv_map());
  update(out_map());
  update(gate_up_map());
  update(down_map());
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::use_adapters(AdapterUse use) {
  m_guard.require("DecoderLayer", "use_adapters");
  if (!adapts() || use == m_adapter_use) return;
  m_adapter_use = use;
  for (Pass& pass : m_passes) pass = {};
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::set_dropout(const std::optional<DropoutDraw>& draw, std::int64_t layer) {
  m_guard.require("DecoderLayer", "set_dropout");
  if (draw && !trains())
    throw NotSupported(
        "kformer::DecoderLayer::set_dropout: the layer was made for inference, which has no dropout; construct "
        "it with LayerMode::training");
  m_draw = draw;
  m_layer = layer;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::zero_gradients(const Exec& exec) {
  m_guard.require("DecoderLayer", "zero_gradients");
  if (m_options.accumulate) clear_gradients(exec);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::clear_gradients(const Exec& exec) {
  if (adapts())
    Impl::zero_numbers("DecoderLayer::zero_gradients", exec, m_adapter_gradient.qkv.parts[0].b.data(),
                       m_adapter_gradient.bytes);
  else
    Impl::zero_numbers("DecoderLayer::zero_gradients", exec, m_gradient.norm1.data(), m_gradient.bytes);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::forward(const Exec& exec, const ConstMatrix& x, const Matrix& y,
                                    const Packed& packed) {
  m_guard.require("DecoderLayer", "forward");
  if (!m_prepared)
    throw NotSupported(
        "kformer::DecoderLayer::forward: the rotary tables are empty; call prepare(exec) once, before the "
        "first forward");
  Impl::require_arrays("DecoderLayer::forward", {{"x", tensor_ref(x)}, {"y", tensor_ref(y)}},
                       {state_rows(), m_config.hidden_size});
  Operands("DecoderLayer::forward", {{"x", tensor_ref(x)}, {"y", tensor_ref(y)}}).require_disjoint("y");
  Impl::require_packed<Exec>("DecoderLayer::forward", m_options, m_shape.rows(), packed);
  m_passes[m_slot] = {};
  if (has_magnitudes() && uses_adapters()) update_gains(exec);
  save(exec, x, packed);
  {
    Region region("down");
    add_product(exec, down_map(), m_product, m_h, y);
  }
  m_passes[m_slot].ran_forward = true;
}

// All that backward reads: forward without its last product.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::save(const Exec& exec, const ConstMatrix& x, const Packed& packed) {
  if (keeps_nothing()) m_shared->computed = nullptr;
  normalise(exec, attention_norm(), x);
  {
    Region region("qkv");
    project(exec, packed);
  }
  {
    Region region("attention");
    attention(exec, packed);
  }
  {
    Region region("out_projection");
    add_product(exec, out_map(), m_attention, x, m_h);
  }
  normalise(exec, mlp_norm(), m_h);
  {
    Region region("gate_up");
    activate(exec);
  }
  if (keeps_nothing()) m_shared->computed = this;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy,
                                     const Matrix& dx, const Packed& packed) {
  m_guard.require("DecoderLayer", "backward");
  if (!trains())
    throw NotSupported(
        "kformer::DecoderLayer::backward: the layer was made for inference and keeps nothing for backward; "
        "construct it with LayerMode::training");
  if (adapts() && !uses_adapters())
    throw NotSupported(
        "kformer::DecoderLayer::backward: the adapters are switched off, and nothing else has a gradient; call "
        "use_adapters(AdapterUse::on) and forward(exec, x, y) first");
  if (!m_passes[m_slot].ran_forward)
    throw NotSupported("kformer::DecoderLayer::backward: there was no forward; call forward(exec, x, y) first");
  Impl::require_arrays("DecoderLayer::backward",
                       {{"x", tensor_ref(x)}, {"dy", tensor_ref(dy)}, {"dx", tensor_ref(dx)}},
                       {state_rows(), m_config.hidden_size});
  Operands("DecoderLayer::backward", {{"x", tensor_ref(x)}, {"dy", tensor_ref(dy)}, {"dx", tensor_ref(dx)}})
      .require_disjoint("dx");
  Impl::require_packed<Exec>("DecoderLayer::backward", m_options, m_shape.rows(), packed);
  m_passes[m_slot].weights_wait = false;
  if (m_options.split_backward)
    Kokkos::deep_copy(exec, m_dy, dy);
  else if (!m_options.accumulate)
    clear_gradients(exec);
  if (puts_off_vectors()) clear_vectors(exec);
  const bool again = keeps_nothing() && m_shared->computed != this;
  if (again) {
    save(exec, x, packed);
    down_map().restore(exec, m_product);
  }
  mlp_gradient(exec, dy, !again && !keeps_pointwise() && !m_options.split_backward);
  {
    Region region("out_projection");
    reverse_product(exec, out_map(), m_attention, whole(exec, m_dh), m_d_attention);
  }
  {
    Region region("attention");
    attention_gradient(exec, packed);
  }
  {
    Region region("rope");
    for_positions(packed, queries(m_d_qkv), keys(m_d_qkv), [&](const auto& dq, const auto& dk, const auto& p) {
      rope_backward(exec, dq, dk, m_cos, m_sin, p, m_config.rope.layout);
    });
    if (m_config.qk_norm) head_norm_gradient(exec);
  }
  if (!keeps_pointwise() && !m_options.split_backward) normalise(exec, attention_norm(), x);
  {
    Region region("qkv");
    reverse_product(exec, qkv_map(), whole_unless_split(exec, m_normed1), m_d_qkv, summand(m_d_normed));
    add_up(exec, m_d_normed, "gradients of activations");
    if (m_config.attention_bias && !adapts()) linear_backward_bias(exec, m_d_qkv, m_vectors.bias);
  }
  norm_gradient(exec, attention_norm(), x, m_dh, dx);
  m_passes[m_slot].weights_wait = m_options.split_backward;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::normalise(const Exec& exec, const Norm& norm, const ConstMatrix& x) {
  Region region(norm.region);
  rms_norm_forward(exec, x, norm.weight, norm.y, norm.rstd, {.eps = m_config.rms_norm_eps});
}

// From the gradient of what the norm returned, and that of x by its other use, to the gradient of x.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::norm_gradient(const Exec& exec, const Norm& norm, const ConstMatrix& x,
                                          const ConstMatrix& d_residual, const Matrix& dx) {
  Region region(norm.region);
  rms_norm_residual_backward(exec,
                             RmsNormResidualBackwardOperands{.sum = x,
                                                             .weight = norm.weight,
                                                             .rstd = norm.rstd,
                                                             .dy = m_d_normed,
                                                             .dsum = d_residual,
                                                             .dx = dx,
                                                             .dweight = norm.dweight},
                             m_norm_workspace);
}

// From dy to dh, the gradient of what entered the MLP and its residual. `restore`: whether the norm's output and
// the product have to be computed again.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::mlp_gradient(const Exec& exec, const ConstMatrix& dy, bool restore) {
  if (restore) restore_product(exec);
  {
    Region region("down");
    reverse_product(exec, down_map(), m_product, whole(exec, dy), m_d_product);
  }
  {
    Region region("swiglu");
    swiglu_backward(exec, Impl::gate_half(m_gate_up), Impl::up_half(m_gate_up), m_d_product,
                    Impl::gate_half(m_d_gate_up), Impl::up_half(m_d_gate_up));
  }
  if (restore) normalise(exec, mlp_norm(), m_h);
  {
    Region region("gate_up");
    reverse_product(exec, gate_up_map(), whole_unless_split(exec, m_normed2), m_d_gate_up, summand(m_d_normed));
    add_up(exec, m_d_normed, "gradients of activations");
  }
  norm_gradient(exec, mlp_norm(), m_h, dy, m_dh);
}

// Gate and up, and their product. Without adapters on dense weights the activation follows the product tile by tile.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::activate(const Exec& exec) {
  const ConstMatrix normed = whole(exec, m_normed2);
  if (!uses_adapters() && m_weight.gate_up_split.empty()) {
    linear_swiglu_forward(exec, normed, m_weight.gate_up, m_gate_up, m_product,
                          {.batch_invariant = m_options.batch_invariant}, m_product_workspace);
    return;
  }
  gate_up_map().forward(exec, normed, {}, m_gate_up);
  swiglu_forward(exec, Impl::gate_half(m_gate_up), Impl::up_half(m_gate_up), m_product);
}

// q, k and v, q and k rotated: one product whose tiles are rotated while they are in the cache, unless the
// heads are normalised in between, positions are those of packed documents or of tokens that ranks divide, or there are
// adapters or quantised weights.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::project(const Exec& exec, const Packed& packed) {
  const std::int64_t q_heads = m_config.num_attention_heads, kv_heads = m_config.num_key_value_heads;
  const ConstMatrix normed = whole(exec, m_normed1);
  if (!m_config.qk_norm && !m_options.packed && !uses_adapters() && m_weight.qkv_split.empty() &&
      !m_shared->context) {
    const LinearRopeOptions rotated{.heads = q_heads + kv_heads,
                                    .seq_len = m_shape.seq_len,
                                    .layout = m_config.rope.layout,
                                    .linear = {.batch_invariant = m_options.batch_invariant}};
    if (m_config.attention_bias) {
      const LinearBiasRopeForwardOperands operands{
          .x = normed, .weight = m_weight.qkv, .bias = m_weight.bias, .cos = m_cos, .sin = m_sin, .y = m_qkv};
      linear_bias_rope_forward(exec, operands, rotated, m_product_workspace);
    } else {
      linear_rope_forward(exec, normed, m_weight.qkv, m_cos, m_sin, m_qkv, rotated, m_product_workspace);
    }
    return;
  }
  qkv_map().forward(exec, normed, m_weight.bias, m_qkv);
  if (m_config.qk_norm) {
    const auto heads = [&](const Matrix& from, std::int64_t first, std::int64_t count) {
      return Impl::heads_of_rows(from, first, count, m_config.head_dim);
    };
    qk_norm_forward(exec,
                    QkNormForwardOperands{.q = heads(m_qkv, 0, q_heads),
                                          .k = heads(m_qkv, q_heads, kv_heads),
                                          .q_weight = m_weight.q_norm,
                                          .k_weight = m_weight.k_norm,
                                          .q_out = heads(m_rotated, 0, q_heads),
                                          .k_out = heads(m_rotated, q_heads, kv_heads),
                                          .q_rstd = m_q_rstd,
                                          .k_rstd = m_k_rstd},
                    {.eps = m_config.rms_norm_eps});
  }
  for_positions(packed, queries(m_rotated), keys(m_rotated), [&](const auto& q, const auto& k, const auto& p) {
    rope_forward(exec, q, k, m_cos, m_sin, p, m_config.rope.layout);
  });
}

// `rotate(q, k, positions)` of all tokens: positions are those in the document, or in the sequence.
template <class Exec, Scalar T>
template <class F>
void DecoderLayer<Exec, T>::for_positions(const Packed& packed, const Heads& q, const Heads& k,
                                          F rotate) const {
  if (m_options.packed) return rotate(q, k, Impl::rows_of(packed.positions, sequences().batch));
  const auto* context = context_ranks();
  if (!context) return rotate(q, k, std::int64_t(0));
  for (const int half : {0, 1})
    rotate(context->half_of(q, half), context->half_of(k, half), context->slice().first(half));
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::head_norm_gradient(const Exec& exec) {
  const std::int64_t q_heads = m_config.num_attention_heads, kv_heads = m_config.num_key_value_heads;
  const auto gradient = [&](std::int64_t first, std::int64_t count, const auto& weight, const auto& rstd,
                            const auto& dweight) {
    const auto d = Impl::heads_of_rows(m_d_qkv, first, count, m_config.head_dim);
    rms_norm_backward(exec,
                      RmsNormBackwardOperands{.x = Impl::heads_of_rows(m_qkv, first, count, m_config.head_dim),
                                              .weight = weight,
                                              .rstd = rstd,
                                              .dy = d,
                                              .dx = d,
                                              .dweight = dweight},
                      m_norm_workspace);
  };
  gradient(0, q_heads, m_weight.q_norm, m_q_rstd, m_vectors.q_norm);
  gradient(q_heads, kv_heads, m_weight.k_norm, m_k_rstd, m_vectors.k_norm);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::attention(const Exec& exec, const Packed& packed) {
  const auto q = queries(m_rotated), k = keys(m_rotated), v = values(m_qkv), out = queries(m_attention);
  const AttentionOptions options = Impl::attention_options(m_config, m_options);
  if (m_options.attention == AttentionAlgorithm::standard)
    standard_attention_forward(exec, q, k, v, out, m_probabilities, options);
  else if (auto* context = context_ranks())
    context->forward(exec, {q, k, v, out, m_lse, options, packed.starts});
  else
    attention_forward(exec, q, k, v, out, m_lse, options, Impl::documents<Exec>(m_options, packed));
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::attention_gradient(const Exec& exec, const Packed& packed) {
  const auto q = queries(m_rotated), k = keys(m_rotated), v = values(m_qkv), out = queries(m_attention);
  const auto dout = queries(m_d_attention), dq = queries(m_d_qkv), dk = keys(m_d_qkv), dv = values(m_d_qkv);
  const AttentionOptions options = Impl::attention_options(m_config, m_options);
  if (m_options.attention == AttentionAlgorithm::standard) {
    const StandardAttentionBackwardOperands operands{
        .q = q, .k = k, .v = v, .probabilities = m_probabilities, .dout = dout, .dq = dq, .dk = dk, .dv = dv};
    standard_attention_backward(exec, operands, options, m_attention_workspace);
  } else if (auto* context = context_ranks()) {
    context->backward(exec, {q, k, v, out, m_lse, options, packed.starts},
                      {dout, dq, dk, dv, m_attention_workspace});
  } else {
    const AttentionBackwardOperands operands{
        .q = q, .k = k, .v = v, .out = out, .lse = m_lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv};
    attention_backward(exec, operands, options, Impl::documents<Exec>(m_options, packed), {},
                       m_attention_workspace);
  }
}

template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::Heads DecoderLayer<Exec, T>::queries(const Matrix& qkv) const {
  return Impl::heads_of_sequences(qkv, sequences().batch, 0, m_config.num_attention_heads, m_config.head_dim);
}

template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::Heads DecoderLayer<Exec, T>::keys(const Matrix& qkv) const {
  return Impl::heads_of_sequences(qkv, sequences().batch, m_config.num_attention_heads,
                                  m_config.num_key_value_heads, m_config.head_dim);
}

template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::Heads DecoderLayer<Exec, T>::values(const Matrix& qkv) const {
  return Impl::heads_of_sequences(qkv, sequences().batch, rotated_heads(), m_config.num_key_value_heads,
                                  m_config.head_dim);
}

}  // namespace kformer
