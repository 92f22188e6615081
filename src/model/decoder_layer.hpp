// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/region.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu.hpp"
#include "model/head_views.hpp"
#include "model/memory.hpp"

/// \file
/// Definitions of DecoderLayer's members.

namespace kformer {

namespace Impl {

inline AttentionOptions attention_options(const LlamaConfig& config, const LayerOptions& options) {
  return {.causal = options.causal, .window = config.sliding_window, .compute = options.compute};
}

}  // namespace Impl

template <class Exec, Scalar T>
DecoderLayer<Exec, T>::DecoderLayer(const LlamaConfig& config, LayerShape shape, const LayerOptions& options,
                                    Ledger& ledger, const DecoderLayer* share_with)
    : m_config(config), m_shape(shape), m_options(options) {
  config.check();
  if (share_with &&
      (share_with->m_config != config || share_with->m_shape != shape || share_with->m_options != options))
    throw DimensionMismatch(
        "kformer::DecoderLayer: `share_with` was made for another configuration, shape or options; make layers "
        "that "
        "share with the same ones");
  const bool training = options.mode == LayerMode::training;
  m_weight = LayerWeights<memory_space, T>(config, ledger, MemoryClass::weights);
  if (training) m_gradient = LayerWeights<memory_space, C>(config, ledger, MemoryClass::gradients);
  m_tables_filled = share_with ? share_with->m_tables_filled : std::make_shared<bool>(false);
  place_tables(ledger, share_with ? share_with->m_table_block : nullptr);
  place_activations(ledger, share_with && !training ? share_with->m_activation_block : nullptr);
  place_workspace(ledger, share_with ? share_with->m_workspace_block : nullptr);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_tables(Ledger& ledger, const Block& shared) {
  const std::int64_t half = m_config.head_dim / 2;
  Arena<memory_space> arena;
  arena.add(m_cos, m_shape.seq_len, half);
  arena.add(m_sin, m_shape.seq_len, half);
  m_table_block =
      Impl::allocate_or_share(arena, ledger, MemoryClass::weights, "DecoderLayer::rope_tables", shared);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_activations(Ledger& ledger, const Block& shared) {
  const std::int64_t rows = m_shape.rows(), heads = m_config.num_attention_heads, seq = m_shape.seq_len;
  Arena<memory_space> arena;
  arena.add(m_rstd1, rows);
  arena.add(m_rstd2, rows);
  arena.add(m_h, rows, m_config.hidden_size);
  if (m_config.qk_norm) {
    arena.add(m_q_rstd, rows, heads);
    arena.add(m_k_rstd, rows, m_config.num_key_value_heads);
  }
  if (keeps_rotated()) arena.add(m_rotated, rows, rotated_heads() * m_config.head_dim);
  const auto attention_half = [&] {
    arena.add(m_qkv, rows, m_config.qkv_size());
    arena.add(m_attention, rows, m_config.attention_size());
    if (m_options.attention == AttentionAlgorithm::standard)
      arena.add(m_probabilities, m_shape.batch, heads, seq, seq);
    else
      arena.add(m_lse, m_shape.batch, heads, seq);
  };
  const auto mlp_half = [&] { arena.add(m_gate_up, rows, 2 * m_config.intermediate_size); };
  // The attention half is dead when the MLP starts, unless backward comes.
  if (m_options.mode == LayerMode::inference) {
    arena.overlap(attention_half, mlp_half);
  } else {
    attention_half();
    mlp_half();
  }
  m_activation_block =
      Impl::allocate_or_share(arena, ledger, MemoryClass::activations, "DecoderLayer::activations", shared);
  if (!keeps_rotated()) m_rotated = m_qkv;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_workspace(Ledger& ledger, const Block& shared) {
  const std::int64_t rows = m_shape.rows(), hidden = m_config.hidden_size, inner = m_config.intermediate_size;
  const bool training = m_options.mode == LayerMode::training;
  Arena<memory_space> arena;
  arena.add(m_normed, rows, hidden);
  arena.add(m_product_workspace, linear_forward_workspace_bytes(Exec()));
  if (training) {
    // Backward walks from y to x and needs two arrays at any time besides dh: the gradient it comes with and
    // the one it makes. The recomputed product stands where the gradient of gate and up will be.
    arena.overlap([&] { arena.add(m_d_product, rows, inner); }, [&] { arena.add(m_d_normed, rows, hidden); },
                  [&] { arena.add(m_d_attention, rows, m_config.attention_size()); });
    arena.overlap([&] { arena.add(m_product, rows, inner); }, [&] { arena.add(m_d_gate_up, rows, 2 * inner); },
                  [&] { arena.add(m_d_qkv, rows, m_config.qkv_size()); });
    arena.add(m_dh, rows, hidden);
    arena.add(m_norm_workspace, norm_workspace_bytes());
    arena.add(m_attention_workspace, attention_workspace_bytes());
  }
  m_workspace_block =
      Impl::allocate_or_share(arena, ledger, MemoryClass::workspace, "DecoderLayer::workspace", shared);
  // In inference the product overwrites the gate.
  if (!training) m_product = Impl::gate_half(m_gate_up);
}

template <class Exec, Scalar T>
std::size_t DecoderLayer<Exec, T>::norm_workspace_bytes() const {
  const std::int64_t rows = m_shape.rows();
  const auto head_bytes = [&](std::int64_t heads) {
    return m_config.qk_norm ? rms_norm_backward_workspace_bytes<T>(Exec(), rows, heads, m_config.head_dim) : 0;
  };
  return std::max({rms_norm_residual_backward_workspace_bytes<T>(Exec(), rows, m_config.hidden_size),
                   head_bytes(m_config.num_attention_heads), head_bytes(m_config.num_key_value_heads)});
}

template <class Exec, Scalar T>
std::size_t DecoderLayer<Exec, T>::attention_workspace_bytes() const {
  const std::int64_t heads = m_config.num_attention_heads, seq = m_shape.seq_len;
  if (m_options.attention == AttentionAlgorithm::standard)
    return standard_attention_backward_workspace_bytes<T>(Exec(), m_shape.batch, heads, seq, seq);
  const AttentionShape shape{dtype_of<T>,       m_shape.batch,    seq, seq, heads, m_config.num_key_value_heads,
                             m_config.head_dim, m_config.head_dim};
  return attention_backward_workspace_bytes(Exec(), shape, Impl::attention_options(m_config, m_options));
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::prepare(const Exec& exec) {
  if (!*m_tables_filled) rope_tables(exec, m_cos, m_sin, m_config.rope);
  *m_tables_filled = true;
  zero_gradients(exec);
  m_prepared = true;
}

template <class Exec, Scalar T>
std::vector<Parameter> DecoderLayer<Exec, T>::parameters() const {
  return layer_parameters(m_config, m_weight, m_options.mode == LayerMode::training ? &m_gradient : nullptr);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::zero_gradients(const Exec& exec) {
  Impl::zero_numbers<C>("kformer::DecoderLayer::zero_gradients", exec, m_gradient.block);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::forward(const Exec& exec, const ConstMatrix& x, const Matrix& y) {
  if (!m_prepared)
    throw NotSupported(
        "kformer::DecoderLayer::forward: the rotary tables are empty; call prepare(exec) once, before the "
        "first "
        "forward");
  {
    Region region("attention_norm");
    rms_norm_forward(exec, x, m_weight.norm1, m_normed, m_rstd1, {.eps = m_config.rms_norm_eps});
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
    rms_norm_forward(exec, m_h, m_weight.norm2, m_normed, m_rstd2, {.eps = m_config.rms_norm_eps});
  }
  {
    Region region("gate_up");
    linear_swiglu_forward(exec, m_normed, m_weight.gate_up, m_gate_up, m_product, {}, m_product_workspace);
  }
  {
    Region region("down");
    linear_residual_forward(exec, m_product, m_weight.down, m_h, y, {}, m_product_workspace);
  }
  m_ran_forward = true;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy,
                                     const Matrix& dx) {
  if (m_options.mode != LayerMode::training)
    throw NotSupported(
        "kformer::DecoderLayer::backward: the layer was made for inference and keeps nothing for backward; "
        "construct it with LayerMode::training");
  if (!m_ran_forward)
    throw NotSupported("kformer::DecoderLayer::backward: there was no forward; call forward(exec, x, y) first");
  mlp_gradient(exec, dy);
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
    rms_norm_forward(exec, x, m_weight.norm1, m_normed, m_rstd1, {.eps = m_config.rms_norm_eps});
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

// From dy to dh, the gradient of what entered the MLP and its residual.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::mlp_gradient(const Exec& exec, const ConstMatrix& dy) {
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
    rms_norm_forward(exec, m_h, m_weight.norm2, m_normed, m_rstd2, {.eps = m_config.rms_norm_eps});
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
}

// q, k and v, q and k rotated: one product whose tiles are rotated while they are in the cache, unless the
// heads are normalised in between.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::project(const Exec& exec) {
  const std::int64_t q_heads = m_config.num_attention_heads, kv_heads = m_config.num_key_value_heads;
  if (!m_config.qk_norm) {
    const LinearRopeOptions rotated{q_heads + kv_heads, m_shape.seq_len, 0, m_config.rope.layout};
    if (m_config.attention_bias)
      linear_bias_rope_forward(exec,
                               LinearBiasRopeForwardOperands{.x = m_normed,
                                                             .weight = m_weight.qkv,
                                                             .bias = m_weight.bias,
                                                             .cos = m_cos,
                                                             .sin = m_sin,
                                                             .y = m_qkv},
                               rotated, m_product_workspace);
    else
      linear_rope_forward(exec, m_normed, m_weight.qkv, m_cos, m_sin, m_qkv, rotated, m_product_workspace);
    return;
  }
  if (m_config.attention_bias)
    linear_bias_forward(exec, m_normed, m_weight.qkv, m_weight.bias, m_qkv, {}, m_product_workspace);
  else
    linear_forward(exec, m_normed, m_weight.qkv, m_qkv, {}, m_product_workspace);
  const auto normalise = [&](std::int64_t first, std::int64_t count, const auto& weight, const auto& rstd) {
    rms_norm_forward(exec, Impl::heads_of_rows(m_qkv, first, count, m_config.head_dim), weight,
                     Impl::heads_of_rows(m_rotated, first, count, m_config.head_dim), rstd,
                     {.eps = m_config.rms_norm_eps});
  };
  normalise(0, q_heads, m_weight.q_norm, m_q_rstd);
  normalise(q_heads, kv_heads, m_weight.k_norm, m_k_rstd);
  rope_forward(exec, queries(m_rotated), keys(m_rotated), m_cos, m_sin, 0, m_config.rope.layout);
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
  gradient(0, q_heads, m_weight.q_norm, m_q_rstd, m_gradient.q_norm);
  gradient(q_heads, kv_heads, m_weight.k_norm, m_k_rstd, m_gradient.k_norm);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::attention(const Exec& exec) {
  const auto q = queries(m_rotated), k = keys(m_rotated), v = values(m_qkv), out = queries(m_attention);
  const AttentionOptions options = Impl::attention_options(m_config, m_options);
  if (m_options.attention == AttentionAlgorithm::standard)
    standard_attention_forward(exec, q, k, v, out, m_probabilities, options);
  else
    attention_forward(exec, q, k, v, out, m_lse, options);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::attention_gradient(const Exec& exec) {
  const auto q = queries(m_rotated), k = keys(m_rotated), v = values(m_qkv), out = queries(m_attention);
  const auto dout = queries(m_d_attention), dq = queries(m_d_qkv), dk = keys(m_d_qkv), dv = values(m_d_qkv);
  const AttentionOptions options = Impl::attention_options(m_config, m_options);
  if (m_options.attention == AttentionAlgorithm::standard)
    standard_attention_backward(exec,
                                StandardAttentionBackwardOperands{.q = q,
                                                                  .k = k,
                                                                  .v = v,
                                                                  .probabilities = m_probabilities,
                                                                  .dout = dout,
                                                                  .dq = dq,
                                                                  .dk = dk,
                                                                  .dv = dv},
                                options, m_attention_workspace);
  else
    attention_backward(
        exec,
        AttentionBackwardOperands{
            .q = q, .k = k, .v = v, .out = out, .lse = m_lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv},
        options, {}, {}, m_attention_workspace);
}

template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::Heads DecoderLayer<Exec, T>::queries(const Matrix& qkv) const {
  return Impl::heads_of_sequences(qkv, m_shape.batch, 0, m_config.num_attention_heads, m_config.head_dim);
}

template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::Heads DecoderLayer<Exec, T>::keys(const Matrix& qkv) const {
  return Impl::heads_of_sequences(qkv, m_shape.batch, m_config.num_attention_heads,
                                  m_config.num_key_value_heads, m_config.head_dim);
}

template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::Heads DecoderLayer<Exec, T>::values(const Matrix& qkv) const {
  return Impl::heads_of_sequences(qkv, m_shape.batch, rotated_heads(), m_config.num_key_value_heads,
                                  m_config.head_dim);
}

}  // namespace kformer
