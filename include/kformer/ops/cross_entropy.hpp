// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// Cross entropy of a softmax over the vocabulary with integer targets (Goodfellow, Bengio & Courville, Deep
/// Learning, eq. 6.29–6.30), with the log-sum-exp shifted by the largest logit; label smoothing (Szegedy et
/// al., arXiv:1512.00567, sect. 7), z-loss (Chowdhery et al., arXiv:2204.02311, sect. 5) and the soft cap on
/// logits (Gemma 2, arXiv:2408.00118, sect. 2).

namespace kformer {

/// Options of `cross_entropy_*`.
struct CrossEntropyOptions {
  std::int32_t ignore_index = -100;  ///< rows with this target have loss 0 and gradient 0; any number
  double label_smoothing = 0;        ///< ε in [0, 1): the target becomes `(1 − ε)·onehot + ε/vocabulary`
  double z_loss = 0;                 ///< finite ζ ≥ 0: adds `ζ·lse²` to the loss, which keeps lse near 0
  double softcap = 0;                ///< finite c > 0 replaces a logit x by `c·tanh(x/c)`; 0: no cap
};

namespace Impl {

struct CrossEntropyForward {
  static constexpr const char* op = "cross_entropy";
  static constexpr const char* function = "cross_entropy_forward";
  TensorRef logits, targets, loss, lse;
  CrossEntropyOptions options;
  Operands operands() const;
  void check() const;
};

struct CrossEntropyBackward {
  static constexpr const char* op = "cross_entropy";
  static constexpr const char* function = "cross_entropy_backward";
  TensorRef logits, targets, lse, dloss, dlogits;
  CrossEntropyOptions options;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// `lse = log Σ_v e^z[v]`, `loss = lse − (1 − ε)·z[target] − ε/vocabulary·Σ_v z[v] + ζ·lse²`, for each row,
/// where z are the logits, or `c·tanh(logits/c)` with a soft cap c; the caller takes the mean over rows.
///
/// Logits of any finite size are safe (with label smoothing as long as Σ_v (largest − z[v]) is a number), and
/// −∞ marks an impossible token: its loss is ∞, and with label smoothing, which gives every token a share,
/// so is the loss of its row. A row that holds NaN or +∞, or −∞ only, has loss NaN. A soft cap makes ±∞ the
/// finite ±c. A row whose target is `options.ignore_index` has loss 0 and lse 0 whatever its logits, which are
/// not read. A row whose target is outside [0, vocabulary) and is not ignored has loss NaN.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param logits  (rows, vocabulary), T
/// \param targets (rows), int32
/// \param loss    (rows), compute_t<T>, overwritten, in nats
/// \param lse     (rows), compute_t<T>, overwritten; saved for backward
/// \param options the target to ignore, label smoothing, z-loss, soft cap
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if an option is out of range
template <ExecutionSpace Exec, AnyView L, AnyView I, AnyView O, AnyView S>
void cross_entropy_forward(const Exec& exec, const L& logits, const I& targets, const O& loss, const S& lse,
                           const CrossEntropyOptions& options = {}) {
  using T = Impl::scalar_t<L>;
  const Impl::CrossEntropyForward problem{
      Impl::input<Exec, T, 2>(logits), Impl::input<Exec, std::int32_t, 1>(targets),
      Impl::output<Exec, compute_t<T>, 1>(loss), Impl::output<Exec, compute_t<T>, 1>(lse), options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView L, AnyView I, AnyView O, AnyView S>
void cross_entropy_forward(const L& logits, const I& targets, const O& loss, const S& lse,
                           const CrossEntropyOptions& options = {}) {
  cross_entropy_forward(Kokkos::DefaultExecutionSpace(), logits, targets, loss, lse, options);
}

/// Gradient of `cross_entropy_forward`:
/// `dlogits[v] = (e^(z[v] − lse)·(1 + 2ζ·lse) − (1 − ε)·[v = target] − ε/vocabulary) · z′[v] · dloss`,
/// with `z′ = 1 − (z/c)²` under a soft cap, else 1.
///
/// Ignored rows become exactly 0, whatever their logits and dloss. Rows whose target is outside [0,
/// vocabulary) and is not ignored become NaN.
///
/// \param exec    the instance
/// \param logits  (rows, vocabulary), T, the input of forward
/// \param targets (rows), int32, the input of forward
/// \param lse     (rows), compute_t<T>, saved by forward
/// \param dloss   (rows), compute_t<T>; 1/n for the mean over n rows
/// \param dlogits (rows, vocabulary), T, overwritten; may be `logits` itself
/// \param options as in forward
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if an option is out of range
template <ExecutionSpace Exec, AnyView L, AnyView I, AnyView S, AnyView DO, AnyView DL>
void cross_entropy_backward(const Exec& exec, const L& logits, const I& targets, const S& lse, const DO& dloss,
                            const DL& dlogits, const CrossEntropyOptions& options = {}) {
  using T = Impl::scalar_t<L>;
  const Impl::CrossEntropyBackward problem{
      Impl::input<Exec, T, 2>(logits),         Impl::input<Exec, std::int32_t, 1>(targets),
      Impl::input<Exec, compute_t<T>, 1>(lse), Impl::input<Exec, compute_t<T>, 1>(dloss),
      Impl::output<Exec, T, 2>(dlogits),       options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView L, AnyView I, AnyView S, AnyView DO, AnyView DL>
void cross_entropy_backward(const L& logits, const I& targets, const S& lse, const DO& dloss, const DL& dlogits,
                            const CrossEntropyOptions& options = {}) {
  cross_entropy_backward(Kokkos::DefaultExecutionSpace(), logits, targets, lse, dloss, dlogits, options);
}

}  // namespace kformer
