// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "kformer/memory/arena.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "model/layer_map.hpp"
#include "model/layer_options.hpp"
#include "model/tensor/slices.hpp"
#include "model/tools/memory.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// Definitions of DecoderLayer's members that book memory and say where arrays are.

namespace kformer {

namespace Impl {

inline AttentionOptions attention_options(const LlamaConfig& config, const LayerOptions& options) {
  return {.causal = options.causal,
          .window = config.sliding_window,
          .compute = options.compute,
          .batch_invariant = options.batch_invariant};
}

/// The ranks of all adapters of the maps in front of the one that begins with a projection.
template <class Adapters>
std::size_t ranks_before(const Adapters& adapters, Projection first) {
  return (first > Projection::q ? adapters.qkv.a.extent(0) : 0) +
         (first > Projection::o ? adapters.out.a.extent(0) : 0) +
         (first > Projection::gate ? adapters.gate_up.a.extent(0) : 0);
}

}  // namespace Impl

template <class Exec, Scalar T>
DecoderLayer<Exec, T>::DecoderLayer(const LlamaConfig& config, LayerShape shape, const LayerOptions& options,
                                    Ledger& ledger, const DecoderLayer* share_with, const DecoderLayer* behind,
                                    std::size_t scratch)
    : m_config(config), m_shape(shape), m_seq_len(shape.seq_len), m_options(options) {
  config.check();
  m_config = Impl::slice_of(config, options.tensor);
  Impl::require_not_negative("DecoderLayer", {{"batch", shape.batch}, {"seq_len", shape.seq_len}});
  Impl::check_rope_options(Operands("DecoderLayer", {}), config.rope);
  Impl::check_layer_options(options);
  Impl::check_context(config, shape, options);
  Impl::check_state_rows(shape, options);
  if (Impl::divides(options)) Impl::require_whole_blocks(m_config, options.formats);
  LayerOptions others = options;
  if (share_with) {
    others.recompute = share_with->m_options.recompute;
    others.formats = share_with->m_options.formats;
  }
  if (share_with &&
      (share_with->m_config != m_config || share_with->m_shape != shape || share_with->m_options != others))
    throw DimensionMismatch(
        "kformer::DecoderLayer: `share_with` was made for another configuration, shape or options; make layers "
        "that share with the same ones");
  m_weight = LayerWeights<memory_space, T>(m_config, ledger, MemoryClass::weights, nullptr, 0, options.formats);
  if (adapts()) m_adapter = {m_config, options.lora, ledger, MemoryClass::weights};
  m_shared = share_with ? share_with->m_shared : std::make_shared<Shared>();
  if (Impl::divides(options) && !m_shared->ranks)
    m_shared->ranks.emplace(options.tensor, CollectivesOptions{}, ledger);
  if (Impl::divides_tokens(options) && !m_shared->context)
    m_shared->context.emplace(m_config, shape, options, ledger);
  place_gradients(ledger, behind);
  place_tables(ledger);
  place_activations(ledger);
  place_gains(ledger);
  place_workspace(ledger, scratch);
}

// Arrays of this layer alone, or those in which it takes turns with others, or where the layer behind has what it no
// longer needs.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_gradients(Ledger& ledger, const DecoderLayer* behind) {
  if (!trains()) return;
  MemoryBlock<memory_space>* turn = nullptr;
  if (m_options.gradient_turns > 0) {
    auto& turns = m_shared->gradients;
    turns.resize(static_cast<std::size_t>(m_options.gradient_turns));
    turn = &turns[m_shared->next_turn++ % turns.size()];
  }
  const auto keep = [&](MemoryBlock<memory_space>& block) {
    if (turn && block.bytes() > 0) *turn = std::move(block);
  };
  const std::size_t room = turn ? turn->bytes() : 0;
  if (adapts()) {
    m_adapter_gradient = {m_config, m_options.lora, ledger, MemoryClass::gradients, turn, room};
    return keep(m_adapter_gradient.block);
  }
  // A layer that keeps nothing has no arrays of its own.
  const bool over_dead = !turn && !m_options.accumulate && behind && !behind->m_activation_blocks.empty() &&
                         m_options.slots == 1 && !m_options.split_backward;
  m_gradient = LayerWeights<memory_space, C>(m_config, ledger, MemoryClass::gradients,
                                             over_dead ? &behind->m_activation_blocks.front() : turn,
                                             over_dead ? behind->m_room : room);
  m_vectors = {m_gradient.norm1, m_gradient.norm2, m_gradient.q_norm, m_gradient.k_norm, m_gradient.bias};
  keep(m_gradient.block);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_tables(Ledger& ledger) {
  const std::int64_t half = m_config.head_dim / 2;
  const std::int64_t positions = m_shared->context ? m_shared->context->slice().whole() : m_shape.seq_len;
  Arena<memory_space> arena;
  arena.add(m_cos, positions, half);
  arena.add(m_sin, positions, half);
  Impl::allocate_or_share(arena, ledger, MemoryClass::weights, "DecoderLayer::rope_tables", m_shared->tables);
}

template <class Exec, Scalar T>
std::int64_t DecoderLayer<Exec, T>::state_rows() const {
  return Impl::state_rows(m_shape, m_options);
}

// What a slot has.
template <class Exec, Scalar T>
Arena<typename Exec::memory_space> DecoderLayer<Exec, T>::activation_arena() {
  const std::int64_t rows = m_shape.rows(), heads = m_config.num_attention_heads;
  const auto [batch, seq] = sequences();
  Arena<memory_space> arena;
  arena.add(m_rstd1, state_rows());
  arena.add(m_rstd2, state_rows());
  arena.add(m_h, state_rows(), m_config.hidden_size);
  if (m_config.qk_norm) {
    arena.add(m_q_rstd, rows, heads);
    arena.add(m_k_rstd, rows, m_config.num_key_value_heads);
  }
  if (keeps_rotated()) arena.add(m_rotated, rows, rotated_heads() * m_config.head_dim);
  const auto add_xa = [&](Matrix& xa, const Matrix& a) { arena.add(xa, rows, a.extent(0)); };
  const auto attention_half = [&] {
    add_xa(m_qkv_xa, m_adapter.qkv.a);
    add_xa(m_out_xa, m_adapter.out.a);
    arena.add(m_qkv, rows, m_config.qkv_size());
    arena.add(m_attention, rows, m_config.attention_size());
    if (m_options.attention == AttentionAlgorithm::standard)
      arena.add(m_probabilities, batch, heads, seq, seq);
    else
      arena.add(m_lse, batch, heads, seq);
  };
  const auto mlp_half = [&] {
    add_xa(m_gate_up_xa, m_adapter.gate_up.a);
    add_xa(m_down_xa, m_adapter.down.a);
    arena.add(m_gate_up, rows, 2 * m_config.intermediate_size);
  };
  // The attention half is dead when the MLP starts, unless backward comes.
  if (!trains()) {
    arena.overlap(attention_half, mlp_half);
  } else {
    attention_half();
    mlp_half();
  }
  if (!keeps_nothing()) m_room = arena.bytes();
  if (keeps_pointwise()) {
    arena.add(m_normed1, state_rows(), m_config.hidden_size);
    arena.add(m_normed2, state_rows(), m_config.hidden_size);
    arena.add(m_product, rows, m_config.intermediate_size);
  }
  if (m_options.split_backward) {
    arena.add(m_dy, state_rows(), m_config.hidden_size);
    arena.add(m_d_gate_up, rows, 2 * m_config.intermediate_size);
    arena.add(m_dh, state_rows(), m_config.hidden_size);
    arena.add(m_d_qkv, rows, m_config.qkv_size());
    arena.add(m_dxa, rows, Impl::ranks_before(m_adapter, Projection::down) + m_adapter.down.a.extent(0));
  }
  if (puts_off_vectors()) {
    arena.add(m_vectors.norm1, m_gradient.norm1.extent(0));
    arena.add(m_vectors.norm2, m_gradient.norm2.extent(0));
    arena.add(m_vectors.q_norm, m_gradient.q_norm.extent(0));
    arena.add(m_vectors.k_norm, m_gradient.k_norm.extent(0));
    arena.add(m_vectors.bias, m_gradient.bias.extent(0));
  }
  return arena;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_activations(Ledger& ledger) {
  const auto arena = activation_arena();
  const char* label = "DecoderLayer::activations";
  m_passes.resize(static_cast<std::size_t>(m_options.slots));
  if (keeps_nothing())
    Impl::allocate_or_share(arena, ledger, MemoryClass::activations, label, m_shared->activations);
  else {
    for (std::int64_t slot = 0; slot < m_options.slots; ++slot)
      m_activation_blocks.push_back(arena.allocate(ledger, MemoryClass::activations, label));
    arena.bind(m_activation_blocks.front());
  }
  if (!keeps_rotated()) m_rotated = m_qkv;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::use_slot(std::int64_t slot) {
  m_guard.require("DecoderLayer", "use_slot");
  if (slot < 0 || slot >= m_options.slots)
    throw NotSupported("kformer::DecoderLayer::use_slot: there is no slot " + std::to_string(slot) +
                       ", only 0 to " + std::to_string(m_options.slots - 1) + " (LayerOptions::slots)");
  m_slot = static_cast<std::size_t>(slot);
  m_shared->computed = nullptr;
  if (!keeps_nothing()) bind_activations();
}

// Those of the slot.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::bind_activations() {
  activation_arena().bind(activation_block());
  if (!keeps_rotated()) m_rotated = m_qkv;
}

template <class Exec, Scalar T>
bool DecoderLayer<Exec, T>::has_room_for(std::int64_t seq_len) {
  m_guard.require("DecoderLayer", "has_room_for");
  if (seq_len == m_seq_len) return true;
  const LayerShape shape = std::exchange(m_shape, {m_shape.batch, seq_len});
  Matrix normed, product;
  const bool has_room =
      activation_arena().bytes() <= activation_block().bytes() &&
      workspace_arena(m_scratch.extent(0), normed, product).bytes() <= m_shared->workspace.bytes();
  m_shape = shape;
  return has_room;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::use_seq_len(std::int64_t seq_len) {
  m_guard.require("DecoderLayer", "use_seq_len");
  Impl::require_seq_len("DecoderLayer", seq_len, m_seq_len, m_options);
  if (!has_room_for(seq_len))
    throw NotSupported("kformer::DecoderLayer::use_seq_len: there is no room for sequences of " +
                       std::to_string(seq_len) + " tokens; see has_room_for");
  m_shape.seq_len = seq_len;
  m_passes.assign(m_passes.size(), {});
  m_shared->computed = nullptr;
  bind_activations();
  Matrix normed, product;
  workspace_arena(m_scratch.extent(0), normed, product).bind(m_shared->workspace);
  use_workspace(normed, product);
}

// They stay from forward to backward, whatever recomputes.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_gains(Ledger& ledger) {
  if (!has_magnitudes()) return;
  Arena<memory_space> arena;
  const auto add = [&](Gains& gains, const auto& adapter) {
    arena.add(gains.norm, adapter.magnitude.extent(0));
    arena.add(gains.gain, adapter.magnitude.extent(0));
  };
  add(m_qkv_gains, m_adapter.qkv);
  add(m_out_gains, m_adapter.out);
  add(m_gate_up_gains, m_adapter.gate_up);
  add(m_down_gains, m_adapter.down);
  m_gain_block = arena.allocate(ledger, MemoryClass::activations, "DecoderLayer::gains");
}

// `normed` and `product`: what norms and the activation return, unless it is kept.
template <class Exec, Scalar T>
Arena<typename Exec::memory_space> DecoderLayer<Exec, T>::workspace_arena(std::size_t scratch, Matrix& normed,
                                                                          Matrix& product) {
  const std::int64_t rows = m_shape.rows(), hidden = m_config.hidden_size, inner = m_config.intermediate_size;
  Arena<memory_space> arena;
  const auto own = [&] {
    arena.add(normed, state_rows(), hidden);
    if (divides_states()) {
      arena.add(m_whole, rows, hidden);
      arena.add(m_partial, rows, hidden);
    }
    arena.add(m_product_workspace, product_workspace_bytes());
    if (!trains()) return;
    // Backward walks from y to x and needs two arrays at any time besides dh: the gradient it comes with and
    // the one it makes. The recomputed product stands where the gradient of gate and up will be.
    arena.overlap([&] { arena.add(m_d_product, rows, inner); },
                  [&] { arena.add(m_d_normed, state_rows(), hidden); },
                  [&] { arena.add(m_d_attention, rows, m_config.attention_size()); });
    arena.overlap([&] { arena.add(product, rows, inner); },
                  [&] {
                    if (!m_options.split_backward) arena.add(m_d_gate_up, rows, 2 * inner);
                  },
                  [&] {
                    if (!m_options.split_backward) arena.add(m_d_qkv, rows, m_config.qkv_size());
                  });
    if (!m_options.split_backward) {
      arena.add(m_dh, state_rows(), hidden);
      arena.add(m_dxa, rows,
                std::max({m_adapter.qkv.a.extent(0), m_adapter.out.a.extent(0), m_adapter.gate_up.a.extent(0),
                          m_adapter.down.a.extent(0)}));
    }
    if (may_drop()) arena.add(m_dropped, array_bytes<T>({rows, widest_input()}));
    if (has_magnitudes()) arena.add(m_unscaled, array_bytes<T>({rows, widest_gains()}));
    arena.add(m_norm_workspace, norm_workspace_bytes());
    arena.add(m_attention_workspace, attention_workspace_bytes());
  };
  arena.overlap(own, [&] { arena.add(m_scratch, scratch); });
  return arena;
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::place_workspace(Ledger& ledger, std::size_t scratch) {
  Matrix normed, product;
  Impl::allocate_or_share(workspace_arena(scratch, normed, product), ledger, MemoryClass::workspace,
                          "DecoderLayer::workspace", m_shared->workspace);
  use_workspace(normed, product);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::use_workspace(const Matrix& normed, const Matrix& product) {
  if (keeps_pointwise()) return;
  m_normed1 = m_normed2 = normed;
  // In inference the product overwrites the gate.
  m_product = trains() ? product : Matrix(Impl::gate_half(m_gate_up));
}

template <class Exec, Scalar T>
std::size_t DecoderLayer<Exec, T>::product_workspace_bytes() const {
  std::size_t bytes = linear_forward_workspace_bytes(Exec());
  for (const auto* split :
       {&m_weight.qkv_split, &m_weight.out_split, &m_weight.gate_up_split, &m_weight.down_split})
    for (const auto& w : *split)
      if (w.format) {
        const QuantizedMatrix extents{*w.format, nullptr, w.rows, w.columns};
        bytes = std::max({bytes, quantized_linear_forward_workspace_bytes<T>(Exec(), m_shape.rows(), extents),
                          quantized_linear_backward_input_workspace_bytes<T>(Exec(), m_shape.rows(), extents)});
      }
  return bytes;
}

template <class Exec, Scalar T>
std::size_t DecoderLayer<Exec, T>::norm_workspace_bytes() const {
  const std::int64_t rows = m_shape.rows();
  const auto head_bytes = [&](std::int64_t heads) {
    return m_config.qk_norm ? rms_norm_backward_workspace_bytes<T>(Exec(), rows, heads, m_config.head_dim) : 0;
  };
  return std::max({rms_norm_residual_backward_workspace_bytes<T>(Exec(), state_rows(), m_config.hidden_size),
                   head_bytes(m_config.num_attention_heads), head_bytes(m_config.num_key_value_heads)});
}

// Columns of y of the maps that have magnitudes.
template <class Exec, Scalar T>
std::int64_t DecoderLayer<Exec, T>::widest_gains() const {
  return static_cast<std::int64_t>(std::max({m_qkv_gains.norm.extent(0), m_out_gains.norm.extent(0),
                                             m_gate_up_gains.norm.extent(0), m_down_gains.norm.extent(0)}));
}

// Columns of x of the maps that have adapters.
template <class Exec, Scalar T>
std::int64_t DecoderLayer<Exec, T>::widest_input() const {
  std::int64_t widest = 0;
  for (std::size_t i = 0; i < m_options.lora.targets.size(); ++i)
    if (m_options.lora.targets[i].rank > 0)
      widest = std::max(widest, projection_extents(m_config, static_cast<Projection>(i))[1]);
  return widest;
}

template <class Exec, Scalar T>
std::size_t DecoderLayer<Exec, T>::attention_workspace_bytes() const {
  const std::int64_t heads = m_config.num_attention_heads;
  const auto [batch, seq] = sequences();
  if (m_options.attention == AttentionAlgorithm::standard)
    return standard_attention_backward_workspace_bytes<T>(Exec(), batch, heads, seq, seq);
  const AttentionOptions options = Impl::attention_options(m_config, m_options);
  if (const auto* context = context_ranks()) return context->workspace_bytes(options);
  const AttentionShape shape{
      dtype_of<T>, batch, seq, seq, heads, m_config.num_key_value_heads, m_config.head_dim, m_config.head_dim};
  return attention_backward_workspace_bytes(Exec(), shape, options);
}

// The maps with their adapters. In backward they share one array for the gradients of xa, unless `backward_weights` reads
// them: then each has its own columns.
template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::template Map<3> DecoderLayer<Exec, T>::qkv_map() const {
  return map(m_weight.qkv, m_weight.qkv_split, m_gradient.qkv, m_adapter.qkv, m_adapter_gradient.qkv, m_qkv_xa,
             m_qkv_gains, Projection::q);
}
template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::template Map<1> DecoderLayer<Exec, T>::out_map() const {
  return map(m_weight.out, m_weight.out_split, m_gradient.out, m_adapter.out, m_adapter_gradient.out, m_out_xa,
             m_out_gains, Projection::o);
}
template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::template Map<2> DecoderLayer<Exec, T>::gate_up_map() const {
  return map(m_weight.gate_up, m_weight.gate_up_split, m_gradient.gate_up, m_adapter.gate_up,
             m_adapter_gradient.gate_up, m_gate_up_xa, m_gate_up_gains, Projection::gate);
}
template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::template Map<1> DecoderLayer<Exec, T>::down_map() const {
  return map(m_weight.down, m_weight.down_split, m_gradient.down, m_adapter.down, m_adapter_gradient.down,
             m_down_xa, m_down_gains, Projection::down);
}

template <class Exec, Scalar T>
template <std::size_t count>
typename DecoderLayer<Exec, T>::template Map<count> DecoderLayer<Exec, T>::map(
    const Matrix& weight, const typename LayerWeights<memory_space, T>::Split& split,
    const BlockMatrix<memory_space, C>& dweight, const AdapterMatrices<memory_space, T, count>& adapter,
    const AdapterMatrices<memory_space, C, count>& gradient, const Matrix& xa, const Gains& gains,
    Projection first) const {
  const std::size_t first_dxa = m_options.split_backward ? Impl::ranks_before(m_adapter, first) : 0;
  const Matrix dxa =
      trains() ? Matrix(Kokkos::subview(m_dxa, Kokkos::ALL, std::pair(first_dxa, first_dxa + xa.extent(1))))
               : Matrix();
  const auto in_bytes = [&](const Bytes& bytes, std::size_t columns) {
    return Matrix(reinterpret_cast<T*>(bytes.data()),
                  Kokkos::LayoutStride(static_cast<std::size_t>(m_shape.rows()), columns, columns, 1));
  };
  // Others have the other columns of these weights.
  const bool by_columns = first == Projection::o || first == Projection::down;
  Collectives<Exec>* const ranks = by_columns ? tensor_ranks() : nullptr;
  const std::size_t columns = adapter.a.extent(1);
  Impl::MapDropout<Exec, T> dropout;
  if (m_draw && may_drop())
    dropout = {m_options.lora.dropout,
               *m_draw,
               m_layer,
               first,
               context_ranks() ? context_ranks()->slice() : Impl::ContextSlice{},
               ranks ? static_cast<std::size_t>(ranks->communicator().rank()) * columns : 0,
               in_bytes(m_dropped, columns),
               m_shape.seq_len,
               m_seq_len};
  Impl::MapMagnitudes<Exec, T> magnitudes{gains.norm, gains.gain, {}, ranks};
  if (trains() && magnitudes.any()) magnitudes.product = in_bytes(m_unscaled, gains.norm.extent(0));
  return {uses_adapters(),           weight,  dweight,    adapter, gradient, xa, dxa, m_product_workspace,
          m_options.batch_invariant, dropout, magnitudes, split};
}

}  // namespace kformer
