// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kformer/core/move_guard.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/passed_operand.hpp"

/// \file
/// The feed-forward block of Llama-like models (Shazeer, arXiv:2002.05202, eq. 6, FFN_SwiGLU), forward and
/// backward, on weights of the caller's own.

namespace kformer {

/// What a `SwigluMlp` computes.
struct SwigluMlpConfig {
  std::int64_t hidden_size = 0;          ///< features of a token
  std::int64_t intermediate_size = 0;    ///< features of gate and up
  LayerMode mode = LayerMode::training;  ///< whether there will be a backward
};

/// Views of the weights of a `SwigluMlp`; `U` is `const T`, or for gradients `compute_t<T>`: float also for bf16
/// and f16 weights. Any Kokkos Views with unit stride along the last extent fit.
template <class MemorySpace, class U>
struct SwigluMlpViews {
  BlockMatrix<MemorySpace, U> gate;  ///< (intermediate, hidden)
  BlockMatrix<MemorySpace, U> up;    ///< (intermediate, hidden)
  BlockMatrix<MemorySpace, U> down;  ///< (hidden, intermediate)
};

namespace Impl {
/// What was passed as `SwigluMlpViews`.
template <Role matrix, class Views>
struct PassedSwigluMlpViews {
  Passed<matrix, decltype(Views::gate)> gate, up, down;
};
}  // namespace Impl

/// The feed-forward block of Llama-like models:
///
///     y = (silu(x W_gateᵀ) · (x W_upᵀ)) W_downᵀ.
///
/// The weights are the caller's Views. They are read in place and must outlive the module. The module
/// owns saved activations and workspace, booked in a ledger, and allocates only in its constructor:
///
///     SwigluMlp<Exec, float> mlp({.hidden_size = 64, .intermediate_size = 172}, tokens,
///                                {.gate = w_gate, .up = w_up, .down = w_down}, *ledger);
///     mlp.forward(exec, x, y);
///     mlp.backward(exec, x, dy, dx, {.gate = dw_gate, .up = dw_up, .down = dw_down});
///
/// The members are compiled into the library, for every execution space of Kokkos and every storage type.
template <class Exec, Scalar T>
class SwigluMlp {
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
  using Weights = SwigluMlpViews<memory_space, const T>;
  /// The gradients of the weights.
  using Gradients = SwigluMlpViews<memory_space, C>;

  /// Books and allocates everything.
  /// \param config  extents, and whether there will be a backward
  /// \param rows    tokens it will work on
  /// \param weights the caller's
  /// \param ledger  where the memory is booked
  /// \throws DimensionMismatch if an extent is out of range or a weight does not match it
  /// \throws OutOfMemory with the ledger
  SwigluMlp(const SwigluMlpConfig& config, std::int64_t rows, const Weights& weights, Ledger& ledger);

  /// Refused at compile time: a weight does not fit.
  template <class = void>
  SwigluMlp(const SwigluMlpConfig& config, std::int64_t rows,
            const Impl::PassedSwigluMlpViews<Impl::Role::weight, Weights>&, Ledger& ledger)
      : SwigluMlp(config, rows, Weights(), ledger) {}

  /// y = mlp(x). In training, saves what `backward` needs.
  /// \param exec the instance everything is launched on; nothing is fenced or allocated
  /// \param x    (rows, hidden), T
  /// \param y    (rows, hidden), T, overwritten; may be `x` itself in inference
  /// \throws DimensionMismatch if extents do not match
  void forward(const Exec& exec, const ConstMatrix& x, const Matrix& y);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void forward(const Exec&, const Impl::Passed<Impl::Role::x, ConstMatrix>&,
               const Impl::Passed<Impl::Role::y, Matrix>&) {}

  /// Gradients of the last `forward`, any number of times. `dx` is overwritten, gradients of the weights are
  /// accumulated.
  /// \param exec      the instance
  /// \param x         (rows, hidden), T, as passed to `forward`
  /// \param dy        (rows, hidden), T
  /// \param dx        (rows, hidden), T, overwritten; not `x` or `dy`
  /// \param gradients of the weights, compute_t<T>, accumulated
  /// \throws NotSupported in inference, or if there was no `forward`
  /// \throws DimensionMismatch if extents do not match
  void backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx,
                const Gradients& gradients);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward(const Exec&, const Impl::Passed<Impl::Role::x, ConstMatrix>&,
                const Impl::Passed<Impl::Role::dy, ConstMatrix>&, const Impl::Passed<Impl::Role::dx, Matrix>&,
                const Impl::PassedSwigluMlpViews<Impl::Role::gradient, Gradients>&) {}

 private:
  using Bytes = BlockVector<memory_space, std::byte>;

  void place(Ledger& ledger);

  SwigluMlpConfig m_config;
  std::int64_t m_rows;
  Weights m_weight;
  Impl::MoveGuard m_guard;
  bool m_ran_forward = false;
  MemoryBlock<memory_space> m_activation_block, m_workspace_block;
  Matrix m_gate, m_up;  // saved by forward
  // Workspace. In inference the product overwrites the gate.
  Matrix m_product, m_d_product, m_d_gate, m_d_up, m_dx;
  Bytes m_product_workspace;
};

}  // namespace kformer
