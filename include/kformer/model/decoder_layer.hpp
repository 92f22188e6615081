// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kformer/core/region.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/model/parameter.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu.hpp"

/// \file
/// The decoder layer of the Llama family (Touvron et al., arXiv:2302.13971, §2.2), forward and backward.

namespace kformer {

/// How a layer computes attention: with the scores in memory, or tile by tile.
enum class AttentionAlgorithm { standard, flash };

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
///     y = h + (silu(g) · u) W_downᵀ                 with  g, u = rms_norm(h) W_gate_upᵀ.
///
/// The layer owns weights, gradients, saved activations and workspace, all booked in a ledger, and allocates
/// only in its constructor. q, k, v and gate, up are each one product. Backward recomputes the two norms and
/// the SwiGLU product instead of keeping them. In inference, arrays that are never alive together share their
/// memory.
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
  using Matrix = Kokkos::View<U**, Kokkos::LayoutStride, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  /// A one-dimensional array in the layer's memory.
  template <class U>
  using Vector = Kokkos::View<U*, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
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
  /// \throws DimensionMismatch if the configuration is invalid
  /// \throws OutOfMemory with the ledger
  DecoderLayer(const LlamaConfig& config, LayerShape shape, AttentionAlgorithm algorithm, LayerMode mode,
               Ledger& ledger, Compute compute = Compute::storage);

  /// Fills the rotary tables; call once before `forward`.
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

  // Weights or gradients; the published parameters are rows of these.
  template <class U>
  struct ParameterViews {
    Vector<U> norm1, norm2, bias;
    Matrix<U> qkv, out, gate_up, down;
  };

  template <class U>
  void place_parameters(Ledger& ledger, MemoryClass memory_class, MemoryBlock<memory_space>& block,
                        ParameterViews<U>& views);
  void place_tables(Ledger& ledger);
  void place_activations(Ledger& ledger);
  void place_workspace(Ledger& ledger);
  void attention(const Exec& exec) const;
  void attention_gradient(const Exec& exec) const;

  template <class U>
  static Matrix<U> matrix(const MemoryBlock<memory_space>& block, std::size_t offset, std::int64_t rows,
                          std::int64_t columns) {
    const auto m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(columns);
    return Matrix<U>(block.template at<U>(offset), Kokkos::LayoutStride(m, n, n, 1));
  }
  template <class U>
  static Vector<U> vector(const MemoryBlock<memory_space>& block, std::size_t offset, std::int64_t size) {
    return Vector<U>(block.template at<U>(offset), static_cast<std::size_t>(size));
  }
  // Columns [first, first + heads · head_dim) of a (rows, width) array, seen as heads.
  Heads heads(const Matrix<T>& from, std::int64_t first, std::int64_t count) const {
    const auto width = from.stride(0), dim = static_cast<std::size_t>(m_config.head_dim);
    const auto batch = static_cast<std::size_t>(m_shape.batch), seq = static_cast<std::size_t>(m_shape.seq_len);
    const Kokkos::LayoutStride layout(batch, seq * width, seq, width, static_cast<std::size_t>(count), dim, dim,
                                      1);
    return Heads(from.data() + first, layout);
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
  LinearRopeOptions rope_options() const {
    return {m_config.num_attention_heads + m_config.num_key_value_heads, m_shape.seq_len, 0,
            m_config.rope.layout};
  }
  RmsNormOptions norm_options() const { return {.eps = m_config.rms_norm_eps}; }

  LlamaConfig m_config;
  LayerShape m_shape;
  AttentionAlgorithm m_algorithm;
  LayerMode m_mode;
  Compute m_compute;

  MemoryBlock<memory_space> m_weight_block, m_table_block, m_gradient_block, m_activation_block,
      m_workspace_block;
  ParameterViews<T> m_weight;
  ParameterViews<C> m_gradient;
  Matrix<C> m_cos, m_sin;

  // Saved by forward.
  Matrix<T> m_qkv, m_attention, m_h, m_gate_up;
  Vector<C> m_rstd1, m_rstd2;
  Statistics m_lse;
  Scores m_probabilities;

  // Workspace: a norm's output, and in backward the gradients on their way.
  Matrix<T> m_normed, m_product, m_d_product, m_d_gate_up, m_d_normed, m_d_attention, m_d_qkv, m_dh;
  Vector<std::byte> m_norm_workspace, m_attention_workspace;
};

}  // namespace kformer

#include "kformer/model/decoder_layer_impl.hpp"
