// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "kformer/ops/linear.hpp"

/// \file
/// The output matrix of a language model and its loss, a chunk of rows at a time, so that the logits of all
/// rows never exist at once (Hsu et al., Liger Kernel, arXiv:2410.10989, FusedLinearCrossEntropy).

namespace kformer {

/// Options of `linear_cross_entropy`.
struct LinearCrossEntropyOptions {
  CrossEntropyOptions cross_entropy = {};  ///< options of the loss
  std::int64_t chunk_rows = 0;   ///< rows whose logits exist at once; 0: at most 512 on hosts, 1024 on devices
  bool batch_invariant = false;  ///< the loss of a row has the same bits whatever the other rows are
};

namespace Impl {

/// The operands of both forms, checked before any part is launched; without gradients `dloss`, `dx` and
/// `dweight` are absent.
struct LinearCrossEntropy {
  static constexpr const char* function = "linear_cross_entropy";
  TensorRef x, weight, targets, loss, dloss, dx, dweight;
  LinearCrossEntropyOptions options;
  Operands operands() const;
  void check(const Workspace& workspace, std::int64_t most_rows) const;
};

/// Rows of a chunk, at most, where the caller does not say. Each chunk reads and writes the gradient of the weights once,
/// which this many rows make cheap beside the products. A device computes more operations in the time of a byte.
template <class Exec>
inline constexpr std::int64_t most_chosen_rows = is_host_space<Exec> ? 512 : 1024;

/// The chunks of a problem and the workspace of one: its logits, then its lse. Rows of logits begin at multiples of 16
/// bytes: kernels that read them in such pieces would otherwise sum a row in an order that depends on its place.
struct LogitChunks {
  std::int64_t rows;    ///< of each chunk; the last may have fewer
  std::int64_t stride;  ///< from a row of logits to the next, in elements
  std::size_t lse_offset, bytes;

  LogitChunks(DType storage, std::int64_t all_rows, std::int64_t vocabulary,
              const LinearCrossEntropyOptions& options, std::int64_t most_rows);

  /// What they leave over, for the products.
  Workspace product_workspace(const Workspace& workspace) const;
};

/// The loss chunk by chunk. `gradients(rows, logits, lse, product workspace)` comes after the loss of each:
/// `rows` is the pair of the first row and the one behind the last.
template <class Exec, class X, class W, class I, class O, class F>
void linear_cross_entropy_by_chunks(const Exec& exec, const X& x, const W& weight, const I& targets,
                                    const O& loss, const LinearCrossEntropyOptions& options,
                                    const Workspace& workspace, F gradients) {
  using T = typename X::non_const_value_type;
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  using Memory = typename Exec::memory_space;
  const std::size_t all_rows = x.extent(0), vocabulary = weight.extent(0);
  const LogitChunks chunks(dtype_of<T>, static_cast<std::int64_t>(all_rows),
                           static_cast<std::int64_t>(vocabulary), options, most_chosen_rows<Exec>);
  auto* const begin_of_lse = static_cast<std::byte*>(workspace.data) + chunks.lse_offset;
  for (std::size_t begin = 0; begin < all_rows; begin += static_cast<std::size_t>(chunks.rows)) {
    const std::pair<std::size_t, std::size_t> rows(
        begin, std::min(all_rows, begin + static_cast<std::size_t>(chunks.rows)));
    const std::size_t count = rows.second - rows.first;
    const Kokkos::View<T**, Kokkos::LayoutRight, Memory, Unmanaged> padded(
        static_cast<T*>(workspace.data), count, static_cast<std::size_t>(chunks.stride));
    const auto logits = Kokkos::subview(padded, Kokkos::ALL, std::pair(std::size_t(0), vocabulary));
    const Kokkos::View<compute_t<T>*, Kokkos::LayoutRight, Memory, Unmanaged> lse(
        reinterpret_cast<compute_t<T>*>(begin_of_lse), count);
    const Workspace product = chunks.product_workspace(workspace);
    linear_forward(exec, Kokkos::subview(x, rows, Kokkos::ALL), weight, logits,
                   {.batch_invariant = options.batch_invariant}, product);
    cross_entropy_forward(exec, logits, Kokkos::subview(targets, rows), Kokkos::subview(loss, rows), lse,
                          options.cross_entropy);
    gradients(rows, logits, lse, product);
  }
}

}  // namespace Impl

/// Bytes of workspace both forms of `linear_cross_entropy` need for storage type `T`: the logits of one chunk
/// of rows and their lse, `O(chunk · vocabulary)`, and that of the products.
///
/// \throws NotSupported if `options.chunk_rows` is negative
template <Scalar T, ExecutionSpace Exec>
std::size_t linear_cross_entropy_workspace_bytes(const Exec&, std::int64_t rows, std::int64_t vocabulary,
                                                 const LinearCrossEntropyOptions& options = {}) {
  return Impl::LogitChunks(dtype_of<T>, rows, vocabulary, options, Impl::most_chosen_rows<Exec>).bytes +
         Impl::product_workspace_bytes<Exec>();
}

/// The same on the default instance.
template <Scalar T>
std::size_t linear_cross_entropy_workspace_bytes(std::int64_t rows, std::int64_t vocabulary,
                                                 const LinearCrossEntropyOptions& options = {}) {
  return linear_cross_entropy_workspace_bytes<T>(Kokkos::DefaultExecutionSpace(), rows, vocabulary, options);
}

/// `logits = x · weightᵀ` by `linear_forward` and `loss` of each row by `cross_entropy_forward`, chunk by
/// chunk: only the loss, for validation. The form with gradients gives the same bits.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param x         (rows, hidden), T
/// \param weight    (vocabulary, hidden), T
/// \param targets   (rows), int32
/// \param loss      (rows), compute_t<T>, overwritten, in nats
/// \param options   the loss's options, and the rows of a chunk
/// \param workspace at least `linear_cross_entropy_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if an option is out of range
template <ExecutionSpace Exec, AnyView X, AnyView W, AnyView I, AnyView O>
void linear_cross_entropy(const Exec& exec, const X& x, const W& weight, const I& targets, const O& loss,
                          const LinearCrossEntropyOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<X>;
  Impl::LinearCrossEntropy{Impl::input<Exec, T, 2>(x),
                           Impl::input<Exec, T, 2>(weight),
                           Impl::input<Exec, std::int32_t, 1>(targets),
                           Impl::output<Exec, compute_t<T>, 1>(loss),
                           {},
                           {},
                           {},
                           options}
      .check(workspace, Impl::most_chosen_rows<Exec>);
  Impl::linear_cross_entropy_by_chunks(exec, x, weight, targets, loss, options, workspace,
                                       [](const auto&...) {});
}

/// The same on the default instance.
template <AnyView X, AnyView W, AnyView I, AnyView O>
void linear_cross_entropy(const X& x, const W& weight, const I& targets, const O& loss,
                          const LinearCrossEntropyOptions& options = {}, const Workspace& workspace = {}) {
  linear_cross_entropy(Kokkos::DefaultExecutionSpace(), x, weight, targets, loss, options, workspace);
}

/// The operands of `linear_cross_entropy` with gradients.
template <AnyView X, AnyView W, AnyView I, AnyView DO, AnyView O, AnyView DX, AnyView DW>
struct LinearCrossEntropyOperands {
  X x;        ///< (rows, hidden), T
  W weight;   ///< (vocabulary, hidden), T
  I targets;  ///< (rows), int32
  DO dloss;   ///< (rows), compute_t<T>; shares no memory with `loss`
  O loss;     ///< (rows), compute_t<T>, overwritten, in nats
  DX dx;      ///< (rows, hidden), T, overwritten; may be `x` itself
  /// (vocabulary, hidden), compute_t<T>, accumulated; shares no memory with the inputs. Without rows where the
  /// weight is frozen: its gradient is not formed
  DW dweight;
};

/// The same with its gradients in the same pass: while the logits of a chunk exist they become
/// `dlogits` by `cross_entropy_backward`, then `dweight += dlogitsᵀ · x` and `dx = dlogits · weight` by the
/// products of `linear`. So `dloss` must be known beforehand, 1/n for the mean over n rows. Each element of
/// `dweight` is summed chunk by chunk in order: `options.chunk_rows` changes only its rounding.
///
/// \param exec      the instance
/// \param operands  the Views, as `LinearCrossEntropyOperands` names them
/// \param options   the loss's options, and the rows of a chunk
/// \param workspace at least `linear_cross_entropy_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if an option is out of range
template <ExecutionSpace Exec, class... V>
void linear_cross_entropy(const Exec& exec, const LinearCrossEntropyOperands<V...>& operands,
                          const LinearCrossEntropyOptions& options = {}, const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.x)>;
  Impl::LinearCrossEntropy{Impl::input<Exec, T, 2>(operands.x),
                           Impl::input<Exec, T, 2>(operands.weight),
                           Impl::input<Exec, std::int32_t, 1>(operands.targets),
                           Impl::output<Exec, compute_t<T>, 1>(operands.loss),
                           Impl::input<Exec, compute_t<T>, 1>(operands.dloss),
                           Impl::output<Exec, T, 2>(operands.dx),
                           Impl::output<Exec, compute_t<T>, 2>(operands.dweight),
                           options}
      .check(workspace, Impl::most_chosen_rows<Exec>);
  const auto gradients = [&](const auto& rows, const auto& logits, const auto& lse, const Workspace& product) {
    const auto x = Kokkos::subview(operands.x, rows, Kokkos::ALL);
    const auto dx = Kokkos::subview(operands.dx, rows, Kokkos::ALL);
    cross_entropy_backward(exec, logits, Kokkos::subview(operands.targets, rows), lse,
                           Kokkos::subview(operands.dloss, rows), logits, options.cross_entropy);
    if (operands.dweight.extent(0) > 0) linear_backward_weight(exec, x, logits, operands.dweight, {}, product);
    linear_backward_input(exec, operands.weight, logits, dx, {}, product);
  };
  Impl::linear_cross_entropy_by_chunks(exec, operands.x, operands.weight, operands.targets, operands.loss,
                                       options, workspace, gradients);
}

/// The same on the default instance.
template <class... V>
void linear_cross_entropy(const LinearCrossEntropyOperands<V...>& operands,
                          const LinearCrossEntropyOptions& options = {}, const Workspace& workspace = {}) {
  linear_cross_entropy(Kokkos::DefaultExecutionSpace(), operands, options, workspace);
}

}  // namespace kformer
