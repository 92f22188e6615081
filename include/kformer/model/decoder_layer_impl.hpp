// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/model/decoder_layer.hpp"

/// \file
/// Definitions of DecoderLayer's members.

namespace kformer {

template <class Exec, Scalar T>
DecoderLayer<Exec, T>::DecoderLayer(const LlamaConfig& config, LayerShape shape, AttentionAlgorithm algorithm,
                                    LayerMode mode, Ledger& ledger, Compute compute,
                                    const DecoderLayer* share_with)
    : m_config(config), m_shape(shape), m_algorithm(algorithm), m_mode(mode), m_compute(compute) {
  config.check();
  m_weight = LayerWeights<memory_space, T>(config, ledger, MemoryClass::weights);
  if (mode == LayerMode::training)
    m_gradient = LayerWeights<memory_space, C>(config, ledger, MemoryClass::gradients);
  const bool shares = share_with != nullptr;
  place_tables(ledger, shares ? share_with->m_table_block : nullptr);
  place_activations(ledger, shares && mode == LayerMode::inference ? share_with->m_activation_block : nullptr);
  place_workspace(ledger, shares ? share_with->m_workspace_block : nullptr);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_tables(Ledger& ledger, const Block& shared) {
  const std::int64_t half = m_config.head_dim / 2;
  MemoryLayout layout;
  const auto cos = layout.reserve<C>(m_shape.seq_len * half), sin = layout.reserve<C>(m_shape.seq_len * half);
  m_table_block = allocate(ledger, MemoryClass::weights, "rope_tables", layout, shared);
  m_cos = Impl::matrix_in<C>(*m_table_block, cos, m_shape.seq_len, half);
  m_sin = Impl::matrix_in<C>(*m_table_block, sin, m_shape.seq_len, half);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_activations(Ledger& ledger, const Block& shared) {
  const std::int64_t rows = m_shape.rows(), heads = m_config.num_attention_heads, seq = m_shape.seq_len;
  const bool standard = m_algorithm == AttentionAlgorithm::standard;
  MemoryLayout layout;
  const auto rstd1 = layout.reserve<C>(rows), rstd2 = layout.reserve<C>(rows),
             h = layout.reserve<T>(rows * m_config.hidden_size);
  const auto head_rstd = layout.reserve<C>(m_config.qk_norm ? rows * rotated_heads() : 0);
  const auto rotated = layout.reserve<T>(keeps_rotated() ? rows * rotated_size() : 0);
  const auto halves = layout.next();
  const auto qkv = layout.reserve<T>(rows * m_config.qkv_size());
  const auto attention = layout.reserve<T>(rows * m_config.attention_size());
  const auto lse = layout.reserve<C>(standard ? 0 : rows * heads);
  const auto probabilities = layout.reserve<T>(standard ? rows * heads * seq : 0);
  // The attention half is dead when the MLP starts, unless backward comes.
  if (m_mode == LayerMode::inference) layout.rewind(halves);
  const auto gate_up = layout.reserve<T>(rows * 2 * m_config.intermediate_size);

  m_activation_block = allocate(ledger, MemoryClass::activations, "activations", layout, shared);
  const auto& base = *m_activation_block;
  m_rstd1 = Impl::vector_in<C>(base, rstd1, rows);
  m_rstd2 = Impl::vector_in<C>(base, rstd2, rows);
  m_h = Impl::matrix_in<T>(base, h, rows, m_config.hidden_size);
  m_qkv = Impl::matrix_in<T>(base, qkv, rows, m_config.qkv_size());
  m_head_rstd = Impl::matrix_in<C>(base, head_rstd, m_config.qk_norm ? rotated_heads() : 0, rows);
  m_rotated = keeps_rotated() ? Impl::matrix_in<T>(base, rotated, rows, rotated_size()) : m_qkv;
  m_attention = Impl::matrix_in<T>(base, attention, rows, m_config.attention_size());
  m_gate_up = Impl::matrix_in<T>(base, gate_up, rows, 2 * m_config.intermediate_size);
  const auto batch = static_cast<std::size_t>(m_shape.batch), length = static_cast<std::size_t>(seq);
  if (standard)
    m_probabilities = Scores(base.template at<T>(probabilities), batch, heads, length, length);
  else
    m_lse = Statistics(base.template at<C>(lse), batch, heads, length);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_workspace(Ledger& ledger, const Block& shared) {
  const std::int64_t rows = m_shape.rows(), hidden = m_config.hidden_size, inner = m_config.intermediate_size;
  const bool training = m_mode == LayerMode::training;
  MemoryLayout layout;
  const auto normed = layout.reserve<T>(rows * hidden);
  const auto products = static_cast<std::int64_t>(linear_forward_workspace_bytes(Exec()));
  const auto products_at = layout.reserve<std::byte>(products);
  std::size_t first = 0, second = 0, dh = 0, norm_at = 0, attention_at = 0, norm_bytes = 0, attention_bytes = 0;
  if (training) {
    // Backward walks from y to x and needs two arrays at any time besides dh: the gradient it comes with
    // (first) and the one it makes (second). The recomputed product stands in second until the gradient of gate
    // and up takes its place.
    first = layout.reserve<T>(rows * std::max({inner, hidden, m_config.attention_size()}));
    second = layout.reserve<T>(rows * std::max(2 * inner, m_config.qkv_size()));
    dh = layout.reserve<T>(rows * hidden);
    norm_bytes = std::max(rms_norm_residual_backward_workspace_bytes<T>(Exec(), rows, hidden),
                          rms_norm_backward_workspace_bytes<T>(Exec(), rows, m_config.head_dim));
    norm_at = layout.reserve<std::byte>(static_cast<std::int64_t>(norm_bytes));
    const std::int64_t heads = m_config.num_attention_heads, seq = m_shape.seq_len;
    attention_bytes =
        m_algorithm == AttentionAlgorithm::standard
            ? standard_attention_backward_workspace_bytes<T>(Exec(), m_shape.batch, heads, seq, seq)
            : attention_backward_workspace_bytes(Exec(), attention_shape(), attention_options());
    attention_at = layout.reserve<std::byte>(static_cast<std::int64_t>(attention_bytes));
  }
  m_workspace_block = allocate(ledger, MemoryClass::workspace, "workspace", layout, shared);
  const auto& base = *m_workspace_block;
  m_normed = Impl::matrix_in<T>(base, normed, rows, hidden);
  m_product_workspace = Impl::vector_in<std::byte>(base, products_at, products);
  // In inference the product overwrites the gate.
  m_product = training ? Impl::matrix_in<T>(base, second, rows, inner) : Matrix<T>(Impl::gate_half(m_gate_up));
  if (!training) return;
  m_d_product = Impl::matrix_in<T>(base, first, rows, inner);
  m_d_normed = Impl::matrix_in<T>(base, first, rows, hidden);
  m_d_attention = Impl::matrix_in<T>(base, first, rows, m_config.attention_size());
  m_d_gate_up = Impl::matrix_in<T>(base, second, rows, 2 * inner);
  m_d_qkv = Impl::matrix_in<T>(base, second, rows, m_config.qkv_size());
  m_dh = Impl::matrix_in<T>(base, dh, rows, hidden);
  m_norm_workspace = Impl::vector_in<std::byte>(base, norm_at, static_cast<std::int64_t>(norm_bytes));
  m_attention_workspace =
      Impl::vector_in<std::byte>(base, attention_at, static_cast<std::int64_t>(attention_bytes));
}

template <class Exec, Scalar T>
std::vector<Parameter> DecoderLayer<Exec, T>::parameters() const {
  return layer_parameters(m_config, m_weight, m_mode == LayerMode::training ? &m_gradient : nullptr);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::zero_gradients(const Exec& exec) const {
  auto* gradient = m_gradient.block.template at<C>(0);
  const std::size_t count = m_gradient.block.bytes() / sizeof(C);
  Kokkos::parallel_for(
      "kformer::DecoderLayer::zero_gradients", Kokkos::RangePolicy<Exec>(exec, 0, count),
      KOKKOS_LAMBDA(std::size_t i) { gradient[i] = 0; });
}

template <class Exec, Scalar T>
template <ViewOf<2> X, ViewOf<2> Y>
void DecoderLayer<Exec, T>::forward(const Exec& exec, const X& x, const Y& y) const {
  {
    Region region("attention_norm");
    rms_norm_forward(exec, x, m_weight.norm1, m_normed, m_rstd1, norm_options());
  }
  {
    Region region("qkv");
    project(exec);
  }
  {
    Region region("attention");
    attention(exec);
  }
  {
    Region region("out_projection");
    linear_residual_forward(exec, m_attention, m_weight.out, x, m_h, {}, m_product_workspace);
  }
  {
    Region region("mlp_norm");
    rms_norm_forward(exec, m_h, m_weight.norm2, m_normed, m_rstd2, norm_options());
  }
  {
    Region region("gate_up");
    linear_swiglu_forward(exec, m_normed, m_weight.gate_up, m_gate_up, m_product, {}, m_product_workspace);
  }
  Region region("down");
  linear_residual_forward(exec, m_product, m_weight.down, m_h, y, {}, m_product_workspace);
}

template <class Exec, Scalar T>
template <ViewOf<2> X, ViewOf<2> DY, ViewOf<2> DX>
void DecoderLayer<Exec, T>::backward(const Exec& exec, const X& x, const DY& dy, const DX& dx) const {
  if (m_mode != LayerMode::training)
    throw NotSupported(
        "kformer::DecoderLayer::backward: the layer was made for inference and keeps nothing for backward; "
        "construct it with LayerMode::training");
  {
    Region region("swiglu");
    swiglu_forward(exec, Impl::gate_half(m_gate_up), Impl::up_half(m_gate_up), m_product);
  }
  {
    Region region("down");
    linear_backward_weight(exec, m_product, dy, m_gradient.down, {}, m_product_workspace);
    linear_backward_input(exec, m_weight.down, dy, m_d_product, {}, m_product_workspace);
  }
  {
    Region region("swiglu");
    swiglu_backward(exec, Impl::gate_half(m_gate_up), Impl::up_half(m_gate_up), m_d_product,
                    Impl::gate_half(m_d_gate_up), Impl::up_half(m_d_gate_up));
  }
  {
    Region region("mlp_norm");
    rms_norm_forward(exec, m_h, m_weight.norm2, m_normed, m_rstd2, norm_options());
  }
  {
    Region region("gate_up");
    linear_backward_weight(exec, m_normed, m_d_gate_up, m_gradient.gate_up, {}, m_product_workspace);
    linear_backward_input(exec, m_weight.gate_up, m_d_gate_up, m_d_normed, {}, m_product_workspace);
  }
  {
    Region region("mlp_norm");
    rms_norm_residual_backward(exec,
                               RmsNormResidualBackwardOperands{.sum = m_h,
                                                               .weight = m_weight.norm2,
                                                               .rstd = m_rstd2,
                                                               .dy = m_d_normed,
                                                               .dsum = dy,
                                                               .dx = m_dh,
                                                               .dweight = m_gradient.norm2},
                               m_norm_workspace);
  }
  {
    Region region("out_projection");
    linear_backward_weight(exec, m_attention, m_dh, m_gradient.out, {}, m_product_workspace);
    linear_backward_input(exec, m_weight.out, m_dh, m_d_attention, {}, m_product_workspace);
  }
  {
    Region region("attention");
    attention_gradient(exec);
  }
  {
    Region region("rope");
    rope_backward(exec, queries(m_d_qkv), keys(m_d_qkv), m_cos, m_sin, 0, m_config.rope.layout);
    if (m_config.qk_norm) head_norm_gradient(exec);
  }
  {
    Region region("attention_norm");
    rms_norm_forward(exec, x, m_weight.norm1, m_normed, m_rstd1, norm_options());
  }
  {
    Region region("qkv");
    linear_backward_weight(exec, m_normed, m_d_qkv, m_gradient.qkv, {}, m_product_workspace);
    if (m_config.attention_bias) linear_backward_bias(exec, m_d_qkv, m_gradient.bias);
    linear_backward_input(exec, m_weight.qkv, m_d_qkv, m_d_normed, {}, m_product_workspace);
  }
  Region region("attention_norm");
  rms_norm_residual_backward(exec,
                             RmsNormResidualBackwardOperands{.sum = x,
                                                             .weight = m_weight.norm1,
                                                             .rstd = m_rstd1,
                                                             .dy = m_d_normed,
                                                             .dsum = m_dh,
                                                             .dx = dx,
                                                             .dweight = m_gradient.norm1},
                             m_norm_workspace);
}

// q, k and v, q and k rotated: one product whose tiles are rotated while they are in the cache, unless the
// heads are normalised in between.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::project(const Exec& exec) const {
  if (!m_config.qk_norm) {
    if (m_config.attention_bias)
      linear_bias_rope_forward(exec,
                               LinearBiasRopeForwardOperands{.x = m_normed,
                                                             .weight = m_weight.qkv,
                                                             .bias = m_weight.bias,
                                                             .cos = m_cos,
                                                             .sin = m_sin,
                                                             .y = m_qkv},
                               rope_options(), m_product_workspace);
    else
      linear_rope_forward(exec, m_normed, m_weight.qkv, m_cos, m_sin, m_qkv, rope_options(),
                          m_product_workspace);
    return;
  }
  if (m_config.attention_bias)
    linear_bias_forward(exec, m_normed, m_weight.qkv, m_weight.bias, m_qkv, {}, m_product_workspace);
  else
    linear_forward(exec, m_normed, m_weight.qkv, m_qkv, {}, m_product_workspace);
  for (std::int64_t h = 0; h < rotated_heads(); ++h)
    rms_norm_forward(exec, head_of(m_qkv, h),
                     h < m_config.num_attention_heads ? m_weight.q_norm : m_weight.k_norm,
                     head_of(m_rotated, h), head_rstd(h), norm_options());
  rope_forward(exec, queries(m_rotated), keys(m_rotated), m_cos, m_sin, 0, m_config.rope.layout);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::head_norm_gradient(const Exec& exec) const {
  for (std::int64_t h = 0; h < rotated_heads(); ++h) {
    const bool query = h < m_config.num_attention_heads;
    rms_norm_backward(exec,
                      RmsNormBackwardOperands{.x = head_of(m_qkv, h),
                                              .weight = query ? m_weight.q_norm : m_weight.k_norm,
                                              .rstd = head_rstd(h),
                                              .dy = head_of(m_d_qkv, h),
                                              .dx = head_of(m_d_qkv, h),
                                              .dweight = query ? m_gradient.q_norm : m_gradient.k_norm},
                      m_norm_workspace);
  }
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::attention(const Exec& exec) const {
  const auto q = queries(m_rotated), k = keys(m_rotated), v = values(m_qkv), out = queries(m_attention);
  if (m_algorithm == AttentionAlgorithm::standard)
    standard_attention_forward(exec, q, k, v, out, m_probabilities, attention_options());
  else
    attention_forward(exec, q, k, v, out, m_lse, attention_options());
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::attention_gradient(const Exec& exec) const {
  const auto q = queries(m_rotated), k = keys(m_rotated), v = values(m_qkv), out = queries(m_attention);
  const auto dout = queries(m_d_attention), dq = queries(m_d_qkv), dk = keys(m_d_qkv), dv = values(m_d_qkv);
  if (m_algorithm == AttentionAlgorithm::standard)
    standard_attention_backward(exec,
                                StandardAttentionBackwardOperands{.q = q,
                                                                  .k = k,
                                                                  .v = v,
                                                                  .probabilities = m_probabilities,
                                                                  .dout = dout,
                                                                  .dq = dq,
                                                                  .dk = dk,
                                                                  .dv = dv},
                                attention_options(), m_attention_workspace);
  else
    attention_backward(
        exec,
        AttentionBackwardOperands{
            .q = q, .k = k, .v = v, .out = out, .lse = m_lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv},
        attention_options(), {}, {}, m_attention_workspace);
}

}  // namespace kformer
