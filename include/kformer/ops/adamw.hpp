// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// The optimizer step of AdamW (Loshchilov & Hutter, arXiv:1711.05101, algorithm 2, with the bias correction of
/// Adam), over all parameters of a model at once; the norm of all gradients; and states in 8 bits per number
/// (Dettmers et al., arXiv:2110.02861).

namespace kformer {

/// One parameter of a model and the state that AdamW keeps for it. Arrays are dense and row-major, in memory
/// that the execution space can access (`tensor_ref(view)`), and none overlaps another. Those of `gradient`,
/// `master`, `m` and `v` have the extents of `weight`.
///
/// States are float (double for double), or, for weights other than double, 8-bit codes with a scale per
/// `adamw_block` elements in row-major order: `m[i] = signed_map[code[i]] · m_scale[i / 256]`, `v[i] =
/// unsigned_map[code[i]] · v_scale[i / 256]`. A scale is the largest magnitude of its block, and an element's
/// code is that of the map's value nearest to its quotient by the scale (divided in float); of two equally near
/// values the smaller is taken; a positive quotient never becomes the 0 of the unsigned map, because `m` is
/// divided by `√v`. Both maps ascend with the code. With `k = ⌊log2 n⌋` and `j = n − 2^k` their values are
///
///     signed:   n = |code − 127|: ±10^(k − 6) · (0.1 + 0.9 · (j + ½) / 2^k), negative for codes below 127;
///               code 127: 0, code 255: 1
///     unsigned: n = code + 1:      10^(k − 7) · (0.1 + 0.9 · (j + ½) / 2^k); code 0: 0, code 255: 1
///
/// each as the float nearest to the double nearest to it. Before the first step states are 0: codes of any
/// value with scales 0, or arrays of zeros.
struct AdamWParameter {
  TensorRef weight;    ///< T, any extents; updated
  TensorRef gradient;  ///< compute_t<T>; read
  TensorRef master;    ///< compute_t<T>, updated; for 16-bit T: `weight` is its rounding; absent: no master
  TensorRef m;         ///< compute_t<T> or uint8; running mean of the gradient, updated
  TensorRef v;         ///< as `m`; running mean of its square, updated
  TensorRef m_scale;   ///< (⌈size / 256⌉), float, updated; present for 8-bit states
  TensorRef v_scale;   ///< as `m_scale`
  double weight_decay = 0;  ///< λ of this parameter
  std::string name{};       ///< for error texts; may be empty
};

/// Elements that share a scale in 8-bit states.
inline constexpr std::int64_t adamw_block = 256;

/// Options of `adamw`.
struct AdamWOptions {
  double learning_rate = 1e-3;  ///< α, not negative
  double beta1 = 0.9;           ///< decay of the running mean of the gradient, in [0, 1)
  double beta2 = 0.999;         ///< decay of the running mean of its square, in [0, 1)
  double eps = 1e-8;            ///< added to √v̂; at least the smallest normal float
  std::int64_t step = 1;        ///< t: the number of this step, from 1; steps that were skipped do not count
  double gradient_scale = 1;    ///< gradients are multiplied by it: 1 / (loss scale)
  double max_norm = 0;          ///< the gradients are clipped to this global norm, after scaling; 0: never
};

namespace Impl {

struct GradientNorm {
  static constexpr const char* op = "gradient_norm";
  static constexpr const char* function = "gradient_norm";
  std::span<const AdamWParameter> parameters;
  TensorRef norm;
  Operands operands() const;
  void check() const;
  /// Requires memory behind every parameter, which the checks of a plan do not.
  /// \throws DimensionMismatch
  void require_memory() const;
};

/// `norm` may be absent.
struct AdamW {
  static constexpr const char* op = "adamw";
  static constexpr const char* function = "adamw";
  std::span<const AdamWParameter> parameters;
  TensorRef norm;
  AdamWOptions options;
  Operands operands() const;
  void check() const;
  /// As of `GradientNorm`.
  void require_memory() const;
};

}  // namespace Impl

/// Bytes of workspace `gradient_norm` needs for these parameters.
template <ExecutionSpace Exec>
std::size_t gradient_norm_workspace_bytes(const Exec&, std::span<const AdamWParameter> parameters) {
  return Impl::best_workspace_bytes<Exec>(Impl::GradientNorm{parameters, {}});
}

/// The same on the default instance.
inline std::size_t gradient_norm_workspace_bytes(std::span<const AdamWParameter> parameters) {
  return gradient_norm_workspace_bytes(Kokkos::DefaultExecutionSpace(), parameters);
}

/// `norm = √(Σ g²)` over the gradients of all parameters, summed in double in an order that depends only on
/// their sizes: float gradients of any magnitude are safe, double ones up to about 1e150. Not finite if some
/// gradient is not.
///
/// \param exec       the instance everything is launched on; nothing is fenced or allocated
/// \param parameters only `gradient` is read; the list itself is not needed after the call. All of one type C.
/// \param norm       (1), C, overwritten, in memory of the execution space
/// \param workspace  at least `gradient_norm_workspace_bytes`
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
template <ExecutionSpace Exec, AnyView N>
void gradient_norm(const Exec& exec, std::span<const AdamWParameter> parameters, const N& norm,
                   const Workspace& workspace = {}) {
  using T = Impl::scalar_t<N>;
  const Impl::GradientNorm problem{parameters, Impl::output<Exec, T, 1>(norm)};
  problem.require_memory();
  Impl::call(exec, problem, workspace);
}

/// The same on the default instance.
template <AnyView N>
void gradient_norm(std::span<const AdamWParameter> parameters, const N& norm, const Workspace& workspace = {}) {
  gradient_norm(Kokkos::DefaultExecutionSpace(), parameters, norm, workspace);
}

/// One step of AdamW on every parameter, with `w` the master weight if there is one, otherwise the weight (then
/// a 16-bit weight is read, stepped in float and rounded to nearest: steps of less than half an ulp are lost):
///
///     g ← g · gradient_scale,   m ← β1·m + (1 − β1)·g,   v ← β2·v + (1 − β2)·g²
///     w ← w − α·( m/(1 − β1^t) / (√(v/(1 − β2^t)) + eps) + λ·w )
///
/// A handful of launches for the whole list, one pass over memory. Gradients are unchanged.
///
/// \param exec       the instance everything is launched on; nothing is fenced or allocated
/// \param parameters what to update; storage types may differ. The list itself is not needed after the call.
/// \param options    learning rate and so on
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if an option is out of range, or `max_norm` is given without a norm
template <ExecutionSpace Exec>
void adamw(const Exec& exec, std::span<const AdamWParameter> parameters, const AdamWOptions& options = {}) {
  const Impl::AdamW problem{parameters, {}, options};
  problem.require_memory();
  Impl::call(exec, problem);
}

/// The same on the default instance.
inline void adamw(std::span<const AdamWParameter> parameters, const AdamWOptions& options = {}) {
  adamw(Kokkos::DefaultExecutionSpace(), parameters, options);
}

/// The same with the norm that `gradient_norm` computed, in memory of the execution space: gradients are
/// multiplied by `gradient_scale · min(1, max_norm / (norm · gradient_scale + 10⁻⁶))`, as PyTorch's
/// `clip_grad_norm_` does, and if the norm is not finite the step is skipped as a whole: nothing is written. The
/// host does not need the norm to continue; a trainer copies it to the host asynchronously, and looks at it
/// before it launches the next step, to adapt the loss scale and to count the step.
///
/// \param exec       the instance everything is launched on; nothing is fenced or allocated
/// \param parameters what to update; storage types may differ, but gradients have one type C
/// \param norm       (1), C, of the same gradients, in memory of the execution space
/// \param options    learning rate and so on
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if an option is out of range
template <ExecutionSpace Exec, AnyView N>
void adamw(const Exec& exec, std::span<const AdamWParameter> parameters, const N& norm,
           const AdamWOptions& options = {}) {
  using T = Impl::scalar_t<N>;
  const Impl::AdamW problem{parameters, Impl::input<Exec, T, 1>(norm), options};
  problem.require_memory();
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView N>
void adamw(std::span<const AdamWParameter> parameters, const N& norm, const AdamWOptions& options = {}) {
  adamw(Kokkos::DefaultExecutionSpace(), parameters, norm, options);
}

}  // namespace kformer
