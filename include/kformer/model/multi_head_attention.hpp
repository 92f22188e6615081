// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "kformer/core/move_guard.hpp"
#include "kformer/core/types/rope.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/passed_operand.hpp"
#include "kformer/ops/attention.hpp"

/// \file
/// Multi-head attention with its projections (Vaswani et al., arXiv:1706.03762, §3.2.2), forward and backward,
/// on weights of the caller's own.

namespace kformer {

/// What a `MultiHeadAttention` computes.
struct MultiHeadAttentionConfig {
  std::int64_t hidden_size = 0;          ///< features of a token
  std::int64_t num_attention_heads = 0;  ///< query heads
  std::int64_t num_key_value_heads = 0;  ///< heads of keys and values; 0: as many as query heads
  std::int64_t head_dim = 0;             ///< features of a head; 0: hidden_size / num_attention_heads
  std::int64_t context_size = 0;         ///< features of a token of the context; 0: hidden_size
  AttentionOptions attention{};          ///< causal, window, scale, softcap, compute; `batch_invariant`: of the
      ///< projections, too, so that a sequence has the same bits in every batch
  std::optional<RopeOptions> rope{};     ///< rotary embedding of queries and keys; without it there is none
  LayerMode mode = LayerMode::training;  ///< whether there will be a backward

  /// The configuration, with defaults in place of 0.
  /// \throws DimensionMismatch naming the member that is out of range
  MultiHeadAttentionConfig checked() const;
};

/// The tokens a `MultiHeadAttention` works on at once.
struct MultiHeadAttentionShape {
  std::int64_t batch;            ///< sequences
  std::int64_t seq_len;          ///< tokens of a sequence
  std::int64_t context_len = 0;  ///< tokens of its context; 0: seq_len

  /// Tokens in all.
  std::int64_t rows() const { return batch * seq_len; }
  /// Tokens of all contexts.
  std::int64_t context_rows() const { return batch * (context_len > 0 ? context_len : seq_len); }
};

/// Views of the weights of a `MultiHeadAttention`; `U` is `const T`, or for gradients `compute_t<T>`: float also
/// for bf16 and f16 weights. Any Kokkos Views with unit stride along the last extent fit. Leave out a bias that
/// does not exist.
template <class MemorySpace, class U>
struct MultiHeadAttentionViews {
  BlockMatrix<MemorySpace, U> q;           ///< (q_heads · head_dim, hidden)
  BlockMatrix<MemorySpace, U> k;           ///< (kv_heads · head_dim, context_size)
  BlockMatrix<MemorySpace, U> v;           ///< (kv_heads · head_dim, context_size)
  BlockMatrix<MemorySpace, U> o;           ///< (hidden, q_heads · head_dim)
  StridedVector<MemorySpace, U> q_bias{};  ///< (q_heads · head_dim)
  StridedVector<MemorySpace, U> k_bias{};  ///< (kv_heads · head_dim)
  StridedVector<MemorySpace, U> v_bias{};  ///< (kv_heads · head_dim)
  StridedVector<MemorySpace, U> o_bias{};  ///< (hidden)
};

namespace Impl {
/// Complete where attention_functors.hpp is included.
template <class F>
struct AttentionFunctorsHeader;

/// What was passed as `MultiHeadAttentionViews`.
template <Role matrix, Role vector, class Views>
struct PassedMultiHeadAttentionViews {
  Passed<matrix, decltype(Views::q)> q, k, v, o;
  Passed<vector, decltype(Views::q_bias)> q_bias{}, k_bias{}, v_bias{}, o_bias{};
};
}  // namespace Impl

/// Multi-head attention of x to a context, or to x itself:
///
///     y = attention(rope(x W_qᵀ + b_q), rope(c W_kᵀ + b_k), c W_vᵀ + b_v) W_oᵀ + b_o.
///
/// The weights are the caller's Views. They are read in place and must outlive the module. The module
/// owns saved activations and workspace, booked in a ledger, and allocates only in its constructor:
///
///     MultiHeadAttention<Exec, float> attention({.hidden_size = 64, .num_attention_heads = 4},
///                                               {batch, seq_len},
///                                               {.q = w_q, .k = w_k, .v = w_v, .o = w_o}, *ledger);
///     attention.forward(exec, x, y);
///     attention.backward(exec, x, dy, dx, {.q = dw_q, .k = dw_k, .v = dw_v, .o = dw_o});
///
/// Rows of x, y and their gradients are tokens, sequence after sequence. The members are compiled into the
/// library, for every execution space of Kokkos and every storage type.
template <class Exec, Scalar T>
class MultiHeadAttention {
 public:
  /// The module's memory space.
  using memory_space = typename Exec::memory_space;
  /// The type of arithmetic and of the gradients of weights.
  using C = compute_t<T>;
  /// A (rows, columns) array that the module writes.
  using Matrix = BlockMatrix<memory_space, T>;
  /// A (rows, columns) array that the module reads.
  using ConstMatrix = BlockMatrix<memory_space, const T>;
  /// The weights.
  using Weights = MultiHeadAttentionViews<memory_space, const T>;
  /// The gradients of the weights.
  using Gradients = MultiHeadAttentionViews<memory_space, C>;

 private:
  using PassedX = Impl::Passed<Impl::Role::x, ConstMatrix>;
  using PassedContext = Impl::Passed<Impl::Role::context, ConstMatrix>;
  using PassedY = Impl::Passed<Impl::Role::y, Matrix>;
  using PassedDY = Impl::Passed<Impl::Role::dy, ConstMatrix>;
  using PassedDX = Impl::Passed<Impl::Role::dx, Matrix>;
  using PassedWeights =
      Impl::PassedMultiHeadAttentionViews<Impl::Role::weight, Impl::Role::weight_bias, Weights>;
  using PassedGradients =
      Impl::PassedMultiHeadAttentionViews<Impl::Role::gradient, Impl::Role::gradient_bias, Gradients>;
  struct PassedBackwardOperands {
    PassedX x;
    PassedContext context;
    PassedDY dy;
    PassedDX dx;
    Impl::Passed<Impl::Role::dcontext, Matrix> dcontext;
    PassedGradients gradients;
  };

 public:
  /// Operands of `backward` of attention to a context.
  struct BackwardOperands {
    ConstMatrix x;        ///< (batch · seq_len, hidden), T, as passed to `forward`
    ConstMatrix context;  ///< (batch · context_len, context_size), T, as passed to `forward`
    ConstMatrix dy;       ///< (batch · seq_len, hidden), T
    Matrix dx;            ///< (batch · seq_len, hidden), T, overwritten; shares no memory with the others
    Matrix dcontext;  ///< (batch · context_len, context_size), T, overwritten; shares no memory with the others
    Gradients gradients;  ///< of the weights, compute_t<T>, accumulated; those of biases where there are biases
  };

  /// Books and allocates everything.
  /// \param config  extents and options
  /// \param shape   the tokens it will work on
  /// \param weights the caller's
  /// \param ledger  where the memory is booked
  /// \throws DimensionMismatch if the configuration is invalid or a weight does not match it
  /// \throws OutOfMemory with the ledger
  MultiHeadAttention(const MultiHeadAttentionConfig& config, const MultiHeadAttentionShape& shape,
                     const Weights& weights, Ledger& ledger);

  /// Refused at compile time: a weight does not fit.
  template <class = void>
  MultiHeadAttention(const MultiHeadAttentionConfig& config, const MultiHeadAttentionShape& shape,
                     const PassedWeights&, Ledger& ledger)
      : MultiHeadAttention(config, shape, Weights(), ledger) {}

  /// Fills the rotary tables. With `rope`, call it once before `forward`; without, it has no effect.
  void prepare(const Exec& exec);

  /// Self-attention. In training, saves what `backward` needs.
  /// \param exec the instance everything is launched on; nothing is fenced or allocated
  /// \param x    (batch · seq_len, hidden), T
  /// \param y    (batch · seq_len, hidden), T, overwritten; may be `x` itself in inference
  /// \throws NotSupported if `prepare` is needed and was not called
  /// \throws DimensionMismatch if extents do not match
  void forward(const Exec& exec, const ConstMatrix& x, const Matrix& y) { forward(exec, x, x, y); }

  /// Attention to a context: cross-attention, unless the context is `x` itself.
  /// \param exec    the instance
  /// \param x       (batch · seq_len, hidden), T
  /// \param context (batch · context_len, context_size), T
  /// \param y       (batch · seq_len, hidden), T, overwritten; may be `x` or `context` itself in inference
  /// \throws NotSupported if `prepare` is needed and was not called, or with `rope` if the context has another
  ///                      length
  /// \throws DimensionMismatch if extents do not match
  void forward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& context, const Matrix& y);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void forward(const Exec&, const PassedX&, const PassedY&) {}
  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void forward(const Exec&, const PassedX&, const PassedContext&, const PassedY&) {}

  /// Attention to a context under a functor of the caller's, as `attention_forward` with a functor: a mask, or
  /// a change of the scores. Include `kformer/ops/attention_functors.hpp`.
  /// \throws NotSupported if `prepare` is needed and was not called
  /// \throws DimensionMismatch if extents do not match
  template <class F>
  void forward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& context, const Matrix& y,
               const F& functor) {
    require_functors_header<F>();
    if constexpr (takes_functor<F>) {
      project(exec, x, context, y);
      attention_forward(exec, m_q, m_k, m_v, m_attended, m_lse, functor, m_config.attention, {},
                        m_attention_workspace);
      finish(exec, x, context, y);
      m_with_functor = true;
    }
  }

  /// Self-attention under a functor.
  /// \throws NotSupported if `prepare` is needed and was not called
  /// \throws DimensionMismatch if extents do not match
  template <class F>
    requires(!AnyView<F>)
  void forward(const Exec& exec, const ConstMatrix& x, const Matrix& y, const F& functor) {
    forward(exec, x, x, y, functor);
  }

  /// Gradients of self-attention, after `forward`, any number of times. `dx` is overwritten, gradients of the
  /// weights are accumulated.
  /// \param exec      the instance
  /// \param x         (batch · seq_len, hidden), T, as passed to `forward`
  /// \param dy        (batch · seq_len, hidden), T
  /// \param dx        (batch · seq_len, hidden), T, overwritten; the sum over queries, keys and values; not `x`
  ///                  or `dy`
  /// \param gradients of the weights, compute_t<T>, accumulated; those of biases where there are biases
  /// \throws NotSupported in inference, or if there was no `forward` of the same kind: of x alone or of a
  ///         context, with a functor or without
  /// \throws DimensionMismatch if extents do not match
  void backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx,
                const Gradients& gradients);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward(const Exec&, const PassedX&, const PassedDY&, const PassedDX&, const PassedGradients&) {}

  /// Gradients of attention to a context, after `forward`, any number of times:
  ///
  ///     attention.backward(exec, {.x = x, .context = context, .dy = dy, .dx = dx, .dcontext = dcontext,
  ///                               .gradients = {.q = dw_q, .k = dw_k, .v = dw_v, .o = dw_o}});
  ///
  /// \param exec     the instance
  /// \param operands those of `forward`, and the gradients
  /// \throws NotSupported in inference, or if there was no `forward` of the same kind: of x alone or of a
  ///         context, with a functor or without
  /// \throws DimensionMismatch if extents do not match
  void backward(const Exec& exec, const BackwardOperands& operands);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward(const Exec&, const PassedBackwardOperands&) {}

  /// Gradients of attention under a functor, as `attention_backward` with a functor.
  /// \throws NotSupported in inference, or if there was no `forward` of the same kind: of x alone or of a
  ///         context, with a functor or without
  /// \throws DimensionMismatch if extents do not match
  template <class F>
  void backward(const Exec& exec, const BackwardOperands& operands, const F& functor) {
    require_functors_header<F>();
    if constexpr (takes_functor<F>) {
      begin_backward(exec, operands, true);
      attention_gradient(exec, functor);
      finish_backward(exec, operands);
    }
  }

  /// Gradients of self-attention under a functor.
  /// \throws NotSupported in inference, or if there was no `forward` of the same kind: of x alone or of a
  ///         context, with a functor or without
  /// \throws DimensionMismatch if extents do not match
  template <class F>
  void backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx,
                const Gradients& gradients, const F& functor) {
    backward(exec, BackwardOperands{x, x, dy, dx, m_d_keys, gradients}, functor);
    add_context_gradient(exec, dx);
  }

  /// The configuration, with defaults in place of 0.
  const MultiHeadAttentionConfig& config() const { return m_config; }

 private:
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  using Heads = Kokkos::View<T****, Kokkos::LayoutRight, memory_space, Unmanaged>;
  using Statistics = Kokkos::View<C***, Kokkos::LayoutRight, memory_space, Unmanaged>;
  using Bytes = BlockVector<memory_space, std::byte>;

  // Whether the functions for functors are declared. A call of one in place of the type would not do: nvcc 13.0 looks it
  // up here, where it may not be declared yet.
  template <class F>
  static constexpr bool takes_functor = requires { sizeof(Impl::AttentionFunctorsHeader<F>); };
  template <class F>
  static consteval void require_functors_header() {
    static_assert(takes_functor<F>, "kformer: include kformer/ops/attention_functors.hpp to pass a functor");
  }

  template <class U>
  void check_views(const char* function, const MultiHeadAttentionViews<memory_space, U>& views) const;
  void require_tokens(const char* function, const ConstMatrix& x, const ConstMatrix& context) const;
  void place(Ledger& ledger);
  std::size_t attention_workspace_bytes() const;
  void require_gradients(const BackwardOperands& operands) const;
  void project(const Exec& exec, const ConstMatrix& x, const ConstMatrix& context, const Matrix& y);
  void project(const Exec& exec, const ConstMatrix& x, const ConstMatrix& weight,
               const StridedVector<memory_space, const T>& bias, const Matrix& y) const;
  void finish(const Exec& exec, const ConstMatrix& x, const ConstMatrix& context, const Matrix& y);
  void begin_backward(const Exec& exec, const BackwardOperands& operands, bool with_functor);
  // With a functor or without.
  template <class... F>
  void attention_gradient(const Exec& exec, const F&... functor) {
    attention_backward(exec,
                       AttentionBackwardOperands{.q = m_q,
                                                 .k = m_k,
                                                 .v = m_v,
                                                 .out = m_attended,
                                                 .lse = m_lse,
                                                 .dout = m_d_attended,
                                                 .dq = m_dq,
                                                 .dk = m_dk,
                                                 .dv = m_dv},
                       functor..., m_config.attention, {}, {}, m_attention_workspace);
  }
  void finish_backward(const Exec& exec, const BackwardOperands& operands);
  // Of self-attention: the context is x.
  void add_context_gradient(const Exec& exec, const Matrix& dx);

  MultiHeadAttentionConfig m_config;
  MultiHeadAttentionShape m_shape;
  Weights m_weight;
  // Forwards whose backward reads what was saved.
  enum class Saved { nothing, self, context };

  Impl::MoveGuard m_guard;
  bool m_prepared = false, m_with_functor = false;
  Saved m_saved = Saved::nothing;
  MemoryBlock<memory_space> m_table_block, m_activation_block, m_workspace_block;
  BlockMatrix<memory_space, C> m_cos, m_sin;
  // Saved by forward.
  Heads m_q, m_k, m_v, m_attended;
  Statistics m_lse;
  // Workspace: the gradients of those, and of the context by way of the keys and of the values.
  Heads m_dq, m_dk, m_dv, m_d_attended;
  Matrix m_d_keys, m_d_values;
  Bytes m_product_workspace, m_attention_workspace;
};

}  // namespace kformer
