// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kformer/core/region.hpp"
#include "kformer/core/types/attention_algorithm.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu.hpp"

/// \file
/// The decoder layer of the Llama family (Touvron et al., arXiv:2302.13971, §2.2), forward and backward.

namespace kformer {

/// Whether a layer keeps what backward needs.
enum class LayerMode { inference, training };

/// The tokens a layer works on at once.
struct LayerShape {
  std::int64_t batch;    ///< sequences
  std::int64_t seq_len;  ///< tokens of a sequence

  /// Tokens in all.
  std::int64_t rows() const { return batch * seq_len; }
};

/// One decoder layer:
///
///     h = x + attention(rope(q), rope(k), v) W_oᵀ   with  q, k, v = rms_norm(x) W_qkvᵀ [+ bias],
///                                                   [q, k = rms_norm of each head,]
///     y = h + (silu(g) · u) W_downᵀ                 with  g, u = rms_norm(h) W_gate_upᵀ.
///
/// The layer owns weights, gradients, saved activations and workspace, all booked in a ledger, and allocates
/// only in its constructor. q, k, v and gate, up are each one product. Backward recomputes the two norms and
/// the SwiGLU product instead of keeping them. In inference, arrays that are never alive together share their
/// memory. The layers of a model share tables and workspace, and in inference everything but their weights.
///
/// Regions for Kokkos Tools: attention_norm, qkv, rope, attention, out_projection, mlp_norm, gate_up, swiglu,
/// down. In forward the rotation belongs to qkv and the activation to gate_up: each follows its product tile by
/// tile.
template <class Exec, Scalar T>
class DecoderLayer {
 public:
  /// The layer's memory space.
  using memory_space = typename Exec::memory_space;
  /// A (rows, columns) array in the layer's memory.
  template <class U>
  using Matrix = BlockMatrix<memory_space, U>;
  /// A one-dimensional array in the layer's memory.
  template <class U>
  using Vector = BlockVector<memory_space, U>;
  /// A (batch, seq, heads, head_dim) array, a slice of a wider one.
  using Heads =
      Kokkos::View<T****, Kokkos::LayoutStride, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  /// A dense (batch, heads, q_len, kv_len) array.
  using Scores =
      Kokkos::View<T****, Kokkos::LayoutRight, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  /// A dense (batch, heads, q_len) array.
  using Statistics =
      Kokkos::View<compute_t<T>***, Kokkos::LayoutRight, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  /// Books and allocates everything; weights and gradients are undefined until they are written.
  /// \param config    the layer's extents
  /// \param shape     the tokens it will work on
  /// \param algorithm how attention is computed
  /// \param mode      whether there will be a backward
  /// \param ledger    where the memory is booked
  /// \param compute   how exact operands of products are that are never in memory: the weights of flash
  /// attention
  /// \param share_with a layer made with the same arguments, whose memory this one uses for all that is not
  /// its own; layers that share must not run at the same time
  /// \throws DimensionMismatch if the configuration is invalid
  /// \throws OutOfMemory with the ledger
  DecoderLayer(const LlamaConfig& config, LayerShape shape, AttentionAlgorithm algorithm, LayerMode mode,
               Ledger& ledger, Compute compute = Compute::storage, const DecoderLayer* share_with = nullptr);

  /// Fills the rotary tables; call once before `forward`, of layers that share for one of them.
  void prepare(const Exec& exec) const { rope_tables(exec, m_cos, m_sin, m_config.rope); }

  /// The weights, and in training their gradients, by published name.
  std::vector<Parameter> parameters() const;

  /// Sets every gradient to zero (training only).
  void zero_gradients(const Exec& exec) const;

  /// y = layer(x). In training, saves what `backward` needs.
  /// \param exec the instance everything is launched on
  /// \param x    (batch · seq, hidden), T
  /// \param y    (batch · seq, hidden), T, overwritten; not `x`
  /// \throws DimensionMismatch if extents do not fit
  template <ViewOf<2> X, ViewOf<2> Y>
  void forward(const Exec& exec, const X& x, const Y& y) const;

  /// Gradients of the last `forward`; what forward saved stays as it is. `dx` is overwritten, parameter
  /// gradients are accumulated.
  /// \param exec the instance everything is launched on
  /// \param x    (batch · seq, hidden), T, as passed to `forward`
  /// \param dy   (batch · seq, hidden), T
  /// \param dx   (batch · seq, hidden), T, overwritten; not `x` or `dy`
  /// \throws NotSupported in inference
  /// \throws DimensionMismatch if extents do not fit
  template <ViewOf<2> X, ViewOf<2> DY, ViewOf<2> DX>
  void backward(const Exec& exec, const X& x, const DY& dy, const DX& dx) const;

 private:
  using C = compute_t<T>;

  // Memory that is this layer's own, or another's.
  using Block = std::shared_ptr<MemoryBlock<memory_space>>;
  static Block allocate(Ledger& ledger, MemoryClass memory_class, const char* label, const MemoryLayout& layout,
                        const Block& shared) {
    if (shared) return shared;
    return std::make_shared<MemoryBlock<memory_space>>(
        ledger.allocate<memory_space>(memory_class, std::string("DecoderLayer::") + label, layout.bytes()));
  }

  void place_tables(Ledger& ledger, const Block& shared);
  void place_activations(Ledger& ledger, const Block& shared);
  void place_workspace(Ledger& ledger, const Block& shared);
  void project(const Exec& exec) const;
  void attention(const Exec& exec) const;
  void attention_gradient(const Exec& exec) const;
  void head_norm_gradient(const Exec& exec) const;

  // Columns [first, first + heads · head_dim) of a (rows, width) array, seen as heads.
  Heads heads(const Matrix<T>& from, std::int64_t first, std::int64_t count) const {
    const auto width = from.stride(0), dim = static_cast<std::size_t>(m_config.head_dim);
    const auto batch = static_cast<std::size_t>(m_shape.batch), seq = static_cast<std::size_t>(m_shape.seq_len);
    const Kokkos::LayoutStride layout(batch, seq * width, seq, width, static_cast<std::size_t>(count), dim, dim,
                                      1);
    return Heads(from.data() + first, layout);
  }
  std::int64_t rotated_heads() const { return m_config.num_attention_heads + m_config.num_key_value_heads; }
  std::int64_t rotated_size() const { return rotated_heads() * m_config.head_dim; }
  bool keeps_rotated() const { return m_config.qk_norm && m_mode == LayerMode::training; }
  // The columns of one head; `h` counts those of q, then those of k.
  Matrix<T> head_of(const Matrix<T>& from, std::int64_t h) const {
    const std::int64_t begin = h * m_config.head_dim;
    return Kokkos::subview(from, Kokkos::ALL, std::pair(begin, begin + m_config.head_dim));
  }
  Vector<C> head_rstd(std::int64_t h) const {
    return Vector<C>(m_head_rstd.data() + h * m_shape.rows(), static_cast<std::size_t>(m_shape.rows()));
  }
  Heads queries(const Matrix<T>& qkv) const { return heads(qkv, 0, m_config.num_attention_heads); }
  Heads keys(const Matrix<T>& qkv) const {
    return heads(qkv, m_config.attention_size(), m_config.num_key_value_heads);
  }
  Heads values(const Matrix<T>& qkv) const {
    return heads(qkv, m_config.attention_size() + m_config.num_key_value_heads * m_config.head_dim,
                 m_config.num_key_value_heads);
  }
  AttentionOptions attention_options() const {
    return {.scale = 0, .causal = true, .window = m_config.sliding_window, .compute = m_compute};
  }
  AttentionShape attention_shape() const {
    return {dtype_of<T>,
            m_shape.batch,
            m_shape.seq_len,
            m_shape.seq_len,
            m_config.num_attention_heads,
            m_config.num_key_value_heads,
            m_config.head_dim,
            m_config.head_dim};
  }
  LinearRopeOptions rope_options() const { return {rotated_heads(), m_shape.seq_len, 0, m_config.rope.layout}; }
  RmsNormOptions norm_options() const { return {.eps = m_config.rms_norm_eps}; }

  LlamaConfig m_config;
  LayerShape m_shape;
  AttentionAlgorithm m_algorithm;
  LayerMode m_mode;
  Compute m_compute;

  LayerWeights<memory_space, T> m_weight;
  LayerWeights<memory_space, C> m_gradient;
  Block m_table_block, m_activation_block, m_workspace_block;
  Matrix<C> m_cos, m_sin;

  // Saved by forward. m_rotated are q and k as attention takes them: columns of m_qkv, except in training with
  // norms of heads, whose backward needs what the norms were given.
  Matrix<T> m_qkv, m_rotated, m_attention, m_h, m_gate_up;
  Vector<C> m_rstd1, m_rstd2;
  Matrix<C> m_head_rstd;  // (heads of q, then of k; rows)
  Statistics m_lse;
  Scores m_probabilities;

  // Workspace: a norm's output, and in backward the gradients on their way.
  Matrix<T> m_normed, m_product, m_d_product, m_d_gate_up, m_d_normed, m_d_attention, m_d_qkv, m_dh;
  Vector<std::byte> m_product_workspace, m_norm_workspace, m_attention_workspace;
};

}  // namespace kformer

#include "kformer/model/decoder_layer_impl.hpp"
