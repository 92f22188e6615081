// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kformer/memory/ledger.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/layer_weights.hpp"

/// \file
/// The decoder layer of the Llama family (Touvron et al., arXiv:2302.13971, §2.2), forward and backward.

namespace kformer {

/// One decoder layer:
///
///     h = x + attention(rope(q), rope(k), v) W_oᵀ   with  q, k, v = rms_norm(x) W_qkvᵀ [+ bias],
///                                                   [q, k = rms_norm of each head,]
///     y = h + (silu(g) · u) W_downᵀ                 with  g, u = rms_norm(h) W_gate_upᵀ.
///
/// The layer owns weights, gradients, saved activations and workspace, all booked in a ledger. It allocates
/// only in its constructor. q, k, v are one product, and so are gate and up. Backward recomputes the two norms
/// and the SwiGLU product instead of keeping them. In inference, arrays that are never alive at the same time
/// share their memory. The layers of a model share tables and workspace, and in inference everything but their
/// weights.
///
/// Regions for Kokkos Tools: attention_norm, qkv, rope, attention, out_projection, mlp_norm, gate_up, swiglu,
/// down. In forward the rotation belongs to qkv and the activation to gate_up: each follows its product tile by
/// tile.
///
/// The members are compiled into the library, for every execution space of Kokkos and every storage type.
template <class Exec, Scalar T>
class DecoderLayer {
 public:
  /// The layer's memory space.
  using memory_space = typename Exec::memory_space;
  /// A (rows, columns) array that the layer writes.
  using Matrix = BlockMatrix<memory_space, T>;
  /// A (rows, columns) array that the layer reads.
  using ConstMatrix = BlockMatrix<memory_space, const T>;

  /// Books and allocates everything. Weights are undefined until they are written.
  /// \param config     the layer's extents
  /// \param shape      the tokens it will work on
  /// \param options    how attention is computed, whether there will be a backward, …
  /// \param ledger     where the memory is booked
  /// \param share_with a layer made with the same configuration, shape and options; this one uses its memory
  ///                   for everything but parameters and what backward needs. Such layers must not run at the
  ///                   same time.
  /// \throws DimensionMismatch if the configuration is invalid, or differs from that of `share_with`
  /// \throws OutOfMemory with the ledger
  DecoderLayer(const LlamaConfig& config, LayerShape shape, const LayerOptions& options, Ledger& ledger,
               const DecoderLayer* share_with = nullptr);

  /// Fills the rotary tables, and in training sets every gradient to zero. Call it once before `forward`;
  /// layers that share need the tables only once, and `prepare` skips them then.
  void prepare(const Exec& exec);

  /// The weights, and in training their gradients, by published name.
  std::vector<Parameter> parameters() const;

  /// Sets every gradient to zero, between one step of training and the next. Without effect in inference.
  void zero_gradients(const Exec& exec);

  /// y = layer(x). In training, saves what `backward` needs.
  /// \param exec the instance everything is launched on; nothing is fenced or allocated
  /// \param x    (batch · seq, hidden), T
  /// \param y    (batch · seq, hidden), T, overwritten; not `x`
  /// \throws NotSupported if `prepare` was not called
  /// \throws DimensionMismatch if extents do not match
  void forward(const Exec& exec, const ConstMatrix& x, const Matrix& y);

  /// Gradients of the last `forward`, any number of times. `dx` is overwritten, parameter gradients are
  /// accumulated.
  /// \param exec the instance everything is launched on
  /// \param x    (batch · seq, hidden), T, as passed to `forward`
  /// \param dy   (batch · seq, hidden), T
  /// \param dx   (batch · seq, hidden), T, overwritten; not `x` or `dy`
  /// \throws NotSupported in inference, or if there was no `forward`
  /// \throws DimensionMismatch if extents do not match
  void backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx);

 private:
  using C = compute_t<T>;
  using Vector = BlockVector<memory_space, C>;
  using Bytes = BlockVector<memory_space, std::byte>;
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  // (batch, seq, heads, head_dim), a slice of a wider array.
  using Heads = Kokkos::View<T****, Kokkos::LayoutStride, memory_space, Unmanaged>;

  // Memory that is this layer's own, or another's.
  using Block = std::shared_ptr<MemoryBlock<memory_space>>;
  void place_tables(Ledger& ledger, const Block& shared);
  void place_activations(Ledger& ledger, const Block& shared);
  void place_workspace(Ledger& ledger, const Block& shared);
  std::size_t norm_workspace_bytes() const;
  std::size_t attention_workspace_bytes() const;

  void project(const Exec& exec);
  void attention(const Exec& exec);
  void mlp_gradient(const Exec& exec, const ConstMatrix& dy);
  void attention_gradient(const Exec& exec);
  void head_norm_gradient(const Exec& exec);

  Heads queries(const Matrix& qkv) const;
  Heads keys(const Matrix& qkv) const;
  Heads values(const Matrix& qkv) const;
  std::int64_t rotated_heads() const { return m_config.num_attention_heads + m_config.num_key_value_heads; }
  bool keeps_rotated() const { return m_config.qk_norm && m_options.mode == LayerMode::training; }

  LlamaConfig m_config;
  LayerShape m_shape;
  LayerOptions m_options;
  bool m_prepared = false, m_ran_forward = false;

  LayerWeights<memory_space, T> m_weight;
  LayerWeights<memory_space, C> m_gradient;
  std::shared_ptr<bool> m_tables_filled;  // of all layers that share
  Block m_table_block, m_activation_block, m_workspace_block;
  BlockMatrix<memory_space, C> m_cos, m_sin;

  // Saved by forward. m_rotated are q and k as attention takes them: columns of m_qkv, except in training with
  // norms of heads, whose backward needs the inputs of the norms.
  Matrix m_qkv, m_rotated, m_attention, m_h, m_gate_up;
  Vector m_rstd1, m_rstd2;
  BlockMatrix<memory_space, C> m_q_rstd, m_k_rstd;                                    // (rows, heads)
  Kokkos::View<C***, Kokkos::LayoutRight, memory_space, Unmanaged> m_lse;             // (batch, heads, seq)
  Kokkos::View<T****, Kokkos::LayoutRight, memory_space, Unmanaged> m_probabilities;  // (…, q_len, kv_len)

  // Workspace: a norm's output, and in backward the gradients on their way.
  Matrix m_normed, m_product, m_d_product, m_d_gate_up, m_d_normed, m_d_attention, m_d_qkv, m_dh;
  Bytes m_product_workspace, m_norm_workspace, m_attention_workspace;
};

}  // namespace kformer
