// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kformer/core/kernel_list.hpp"
#include "kformer/ops/attention_index.hpp"
#include "kformer/ops/impl/flash_backward.hpp"
#include "kformer/ops/impl/flash_forward.hpp"

/// \file
/// Flash attention with masks and scores of your own, in plain C++. On host spaces the library's SIMD kernels
/// call the functor tile by tile; elsewhere the portable kernels are compiled with it in your program.
///
/// A functor is a class with at least one of the first three of these members. All are `const`, each is a
/// `KOKKOS_FUNCTION`, and C is compute_t<T> of the operands.
///
/// `bool operator()(AttentionIndex) const` says whether the query sees the key.
///
/// `KeyRange keys(AttentionRows) const` returns the keys that any of the queries may see. Tiles of other keys
/// are skipped. Query `i` sees no key outside the range of its own row, `{batch, head, i, i + 1}`. The range of
/// several rows must contain the range of each.
///
/// `C operator()(C score, AttentionIndex) const` returns the score of a visible pair. It gets the score that
/// options and extras make.
///
/// `C derivative(C score, AttentionIndex) const` returns the derivative of that function by `score`, for
/// backward. Neither it nor `gradient` may stand without a score.
///
/// `void gradient(C dscore, C score, AttentionIndex) const` is called in backward, once for each visible pair.
/// `dscore` is the gradient of what `operator()` returned for `score`. With it, parameters of the functor and
/// positions get gradients. On host spaces the pairs of one query and head come from one thread, in the order
/// of the keys: a sum per (batch, head, query) needs no atomics and always has the same bits. Other sums, and
/// all sums on devices, need `Kokkos::atomic_add`; their last bits depend on the order of the additions.

namespace kformer {

/// Returns whether a query sees a key: `bool operator()(AttentionIndex) const`, a `KOKKOS_FUNCTION`.
template <class F>
concept AttentionMaskFunctor = requires(const F& f, AttentionIndex at) {
  { f(at) } -> std::same_as<bool>;
};

/// Returns which keys some queries may see: `KeyRange keys(AttentionRows) const`, a `KOKKOS_FUNCTION`.
template <class F>
concept AttentionRangeFunctor = requires(const F& f, AttentionRows rows) {
  { f.keys(rows) } -> std::same_as<KeyRange>;
};

/// Returns the new score: `C operator()(C score, AttentionIndex) const`, a `KOKKOS_FUNCTION`, with C =
/// compute_t<T> of the operands.
template <class F, class C>
concept AttentionScoreFunctor = requires(const F& f, C score, AttentionIndex at) {
  { f(score, at) } -> std::same_as<C>;
};

/// A score functor with a backward pass: `C derivative(C score, AttentionIndex) const`, a `KOKKOS_FUNCTION`, is
/// the derivative of `operator()` by `score`.
template <class F, class C>
concept DifferentiableAttentionScore = requires(const F& f, C score, AttentionIndex at) {
  { f.derivative(score, at) } -> std::same_as<C>;
};

/// A score functor that receives the gradients of its scores: `void gradient(C dscore, C score, AttentionIndex)
/// const`, a `KOKKOS_FUNCTION`.
template <class F, class C>
concept AttentionScoreWithGradient = requires(const F& f, C score, AttentionIndex at) {
  { f.gradient(score, score, at) } -> std::same_as<void>;
};

/// A mask functor, a range functor, a score functor, or several in one.
template <class F, class C>
concept AttentionFunctor = AttentionMaskFunctor<F> || AttentionRangeFunctor<F> || AttentionScoreFunctor<F, C>;

namespace Impl {

/// Any argument in the position of a functor, valid or not.
template <class F>
concept FunctorArgument = std::is_class_v<F> && !std::same_as<F, AttentionOptions>;

/// A functor in the position of the extras.
template <class T>
inline constexpr bool is_extras = false;
template <class Exec>
inline constexpr bool is_extras<AttentionExtras<Exec>> = true;
template <class Exec>
inline constexpr bool is_extras<AttentionExtraGradients<Exec>> = true;
template <class F>
concept LateFunctor = FunctorArgument<F> && !AnyView<F> && !is_extras<F> && !std::same_as<F, Workspace>;

/// Whether a member of a given name exists, whatever its signature.
template <class F>
concept HasKeys = requires { &F::keys; } || requires(F& f, AttentionRows rows) { f.keys(rows); };
template <class F, class C>
concept HasDerivative =
    requires { &F::derivative; } || requires(F& f, C score, AttentionIndex at) { f.derivative(score, at); };
template <class F, class C>
concept HasGradient =
    requires { &F::gradient; } || requires(F& f, C s, AttentionIndex at) { f.gradient(s, s, at); };
template <class F, class C>
concept HasCall = requires { &F::operator(); } || requires(F& f, AttentionIndex at) { f(at); } ||
                  requires(F& f, C score, AttentionIndex at) { f(score, at); };

/// One message for each kind of invalid functor.
template <class F, class C>
consteval void check_functor() {
  static_assert(
      HasCall<F, C> || HasKeys<F>,
      "kformer: the argument after the operands is neither AttentionOptions nor a functor; a functor has "
      "`bool operator()(AttentionIndex) const`, `C operator()(C score, AttentionIndex) const` or `KeyRange "
      "keys(AttentionRows) const`");
  static_assert(
      !HasCall<F, C> || AttentionMaskFunctor<F> || AttentionScoreFunctor<F, C>,
      "kformer: operator() of an attention functor must be `bool operator()(AttentionIndex) const` or `C "
      "operator()(C score, AttentionIndex) const`; check its const, arguments and result");
  static_assert(!HasKeys<F> || AttentionRangeFunctor<F>,
                "kformer: `keys` of an attention functor must be `KeyRange keys(AttentionRows) const`");
  static_assert(
      !HasDerivative<F, C> || DifferentiableAttentionScore<F, C>,
      "kformer: `derivative` of an attention functor must be `C derivative(C score, AttentionIndex) const`");
  static_assert(
      !HasDerivative<F, C> || AttentionScoreFunctor<F, C>,
      "kformer: a functor with `derivative` needs a score, `C operator()(C score, AttentionIndex) const`");
  static_assert(!HasGradient<F, C> || AttentionScoreWithGradient<F, C>,
                "kformer: `gradient` of an attention functor must be `void gradient(C dscore, C score, "
                "AttentionIndex) const`");
  static_assert(
      !HasGradient<F, C> || AttentionScoreFunctor<F, C>,
      "kformer: a functor with `gradient` needs a score, `C operator()(C score, AttentionIndex) const`");
}

/// Scores of options and extras, which a user functor then hides or changes.
template <class T, class F>
struct FunctorScores {
  using C = compute_t<T>;
  static constexpr bool plain = false;

  ExtraScores<T> extras;
  F functor;

  KOKKOS_FUNCTION bool hides() const {
    return AttentionMaskFunctor<F> || AttentionRangeFunctor<F> || extras.hides();
  }
  KOKKOS_FUNCTION KeyRange keys(const AttentionRows& rows) const {
    if constexpr (AttentionRangeFunctor<F>)
      return functor.keys(rows);
    else
      return extras.keys(rows);
  }
  template <class Member>
  KOKKOS_FUNCTION bool skips(const Member& team, std::int64_t b, std::int64_t h, std::int64_t i0, int rows,
                             std::int64_t j0, int cols) const {
    return extras.skips(team, b, h, i0, rows, j0, cols);
  }
  KOKKOS_FUNCTION bool sees(const AttentionIndex& at) const {
    if constexpr (AttentionMaskFunctor<F>)
      return extras.sees(at) && functor(at);
    else
      return extras.sees(at);
  }
  KOKKOS_FUNCTION C apply(C scaled, const AttentionIndex& at, std::int64_t shift) const {
    const C score = extras.apply(scaled, at, shift);
    if constexpr (AttentionScoreFunctor<F, C>)
      return functor(score, at);
    else
      return score;
  }
  KOKKOS_FUNCTION C derivative_by_bias(C scaled, const AttentionIndex& at, std::int64_t shift) const {
    if constexpr (DifferentiableAttentionScore<F, C>)
      return functor.derivative(extras.apply(scaled, at, shift), at);
    else
      return C(1);
  }
  KOKKOS_FUNCTION C derivative(C scaled, const AttentionIndex& at, std::int64_t shift) const {
    return derivative_by_bias(scaled, at, shift) * extras.derivative(scaled, at, shift);
  }
  KOKKOS_FUNCTION void gradient(C dscore, C scaled, const AttentionIndex& at, std::int64_t shift) const {
    if constexpr (AttentionScoreWithGradient<F, C>)
      functor.gradient(dscore, extras.apply(scaled, at, shift), at);
  }
};

template <class T, class F, class Problem>
FunctorScores<T, F> functor_scores(const Problem& problem) {
  return {extra_scores<T>(problem.options, problem.extras), *static_cast<const F*>(problem.functor->functor)};
}

/// `AttentionCalls::finish` for a functor.
template <class F, class C>
void finish_scores(const void* functor, const AttentionIndex& first, int count, void* scores,
                   std::int64_t stride, void* derivatives, std::int64_t derivative_stride) {
  const F& f = *static_cast<const F*>(functor);
  C* score = static_cast<C*>(scores);
  AttentionIndex at = first;
  for (int j = 0; j < count; ++j, ++at.key, score += stride) {
    if (*score == -Kokkos::Experimental::infinity_v<C>) continue;
    if constexpr (AttentionMaskFunctor<F>)
      if (!f(at)) {
        *score = -Kokkos::Experimental::infinity_v<C>;
        continue;
      }
    if constexpr (DifferentiableAttentionScore<F, C>)
      if (derivatives) static_cast<C*>(derivatives)[j * derivative_stride] *= f.derivative(*score, at);
    if constexpr (AttentionScoreFunctor<F, C>) *score = f(*score, at);
  }
}

/// Refers to `functor`, which must outlive it.
template <class C, class F>
AttentionCalls attention_calls(const F& functor) {
  AttentionCalls calls{&functor, AttentionScoreWithGradient<F, C>, AttentionScoreFunctor<F, C>, nullptr,
                       nullptr};
  if constexpr (AttentionRangeFunctor<F>)
    calls.keys = [](const void* f, const AttentionRows& rows) { return static_cast<const F*>(f)->keys(rows); };
  if constexpr (AttentionMaskFunctor<F> || AttentionScoreFunctor<F, C>) calls.finish = finish_scores<F, C>;
  return calls;
}

/// The portable kernels with a functor in them.
template <class T, class F, class Exec>
void run_portable(const Exec& exec, const AttentionForward& p, const Workspace&) {
  flash_forward<T>(exec, p, functor_scores<T, F>(p));
}
template <class T, class F, class Exec>
void run_portable(const Exec& exec, const AttentionBackward& p, const Workspace& workspace) {
  flash_backward<T>(exec, p, functor_scores<T, F>(p), workspace);
}
inline std::size_t portable_workspace(const AttentionForward&) { return 0; }
inline std::size_t portable_workspace(const AttentionBackward& p) { return attention_backward_workspace(p); }

/// The best kernel that supports a functor: on host spaces those of the library that call one, then the
/// portable kernel, with the functor compiled into it by `run`.
template <class Exec, class Problem>
Kernel<Problem, Exec> functor_kernel(const Problem& problem,
                                     void (*run)(const Exec&, const Problem&, const Workspace&)) {
  const Kernel<Problem, Exec> portable{"kokkos", never_rejects, portable_workspace, run};
  std::vector<Kernel<Problem, Exec>> list;
  if constexpr (is_host_space<Exec>)
    for (const Kernel<Problem, Exec>& kernel : kernels<Problem, Exec>()) {
      if (std::string_view(kernel.name) == portable.name) break;
      list.push_back(kernel);
    }
  list.push_back(portable);
  return choose<Problem, Exec>(list, problem);
}

/// As `best_workspace_bytes`, with a functor.
template <class Exec, class Problem, class F>
std::size_t functor_workspace_bytes(Problem problem, const F& functor) {
  problem.check();
  const auto calls =
      problem.q.dtype == DType::f64 ? attention_calls<double>(functor) : attention_calls<float>(functor);
  problem.functor = &calls;
  return functor_kernel<Exec, Problem>(problem, nullptr).workspace_bytes(problem);
}

/// As `run_best`, with a functor.
template <class T, class F, class Exec, class Problem>
void run_with_functor(const Exec& exec, const Problem& problem, const Workspace& workspace) {
  const auto kernel = functor_kernel<Exec, Problem>(problem, run_portable<T, F, Exec>);
  problem.operands().require_workspace(workspace, kernel.workspace_bytes(problem));
  kernel.run(exec, problem, workspace);
}

/// Says to MultiHeadAttention that this header is included.
template <class F>
struct AttentionFunctorsHeader {};

}  // namespace Impl

/// `attention_forward` where `functor` hides pairs, changes scores, or both. What it hides is hidden, NaN
/// included; a score of −∞ has weight 0. The functor comes last: it is called for pairs that options and
/// extras leave visible, and gets scores that are scaled, soft-capped, and have ALiBi and bias added. On host
/// spaces the SIMD kernels call it tile by tile; elsewhere it is compiled into the portable kernel.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param q         (batch, q_len, q_heads, head_dim), T
/// \param k         (batch, kv_len, kv_heads, head_dim), T
/// \param v         (batch, kv_len, kv_heads, v_head_dim), T
/// \param out       (batch, q_len, q_heads, v_head_dim), T, overwritten; saved for backward
/// \param lse       (batch, q_heads, q_len), compute_t<T>, overwritten; saved for backward
/// \param functor   copied into the kernels, as a functor of `Kokkos::parallel_for` is
/// \param options   scale, causal, window, softcap, compute, batch_invariant
/// \param extras    bias, ALiBi slopes, sinks, packed sequences, block mask
/// \param workspace of any size, or none; see `attention_forward_workspace_bytes` for a functor
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is not aligned
/// \throws NotSupported if an option is out of range or operands cannot be combined
template <ExecutionSpace Exec, AnyView Q, AnyView K, AnyView V, AnyView O, AnyView L, Impl::FunctorArgument F>
void attention_forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                       const F& functor, const AttentionOptions& options = {},
                       const std::type_identity_t<AttentionExtras<Exec>>& extras = {},
                       const Workspace& workspace = {}) {
  using T = Impl::scalar_t<Q>;
  Impl::check_functor<F, compute_t<T>>();
  auto problem = Impl::attention_forward_problem<Exec>(q, k, v, out, lse, options, extras.refs(), workspace);
  const auto calls = Impl::attention_calls<compute_t<T>>(functor);
  problem.functor = &calls;
  Impl::check_attention<Exec>(problem);
  Impl::run_with_functor<T, F>(exec, problem, workspace);
}

/// Refused at compile time: the functor stands before the options.
template <ExecutionSpace Exec, AnyView Q, AnyView K, AnyView V, AnyView O, AnyView L, Impl::LateFunctor F,
          class... More>
void attention_forward(const Exec&, const Q&, const K&, const V&, const O&, const L&, const AttentionOptions&,
                       const F&, const More&...) {
  static_assert(!Impl::LateFunctor<F>,
                "kformer: the functor stands before the options: attention_forward(exec, q, k, v, out, lse, "
                "functor, options)");
}

/// The same on the default instance.
template <AnyView Q, AnyView K, AnyView V, AnyView O, AnyView L, Impl::LateFunctor F, class... More>
void attention_forward(const Q&, const K&, const V&, const O&, const L&, const AttentionOptions&, const F&,
                       const More&...) {
  static_assert(!Impl::LateFunctor<F>,
                "kformer: the functor stands before the options: attention_forward(q, k, v, out, lse, functor, "
                "options)");
}

/// The same on the default instance.
template <AnyView Q, AnyView K, AnyView V, AnyView O, AnyView L, Impl::FunctorArgument F>
void attention_forward(const Q& q, const K& k, const V& v, const O& out, const L& lse, const F& functor,
                       const AttentionOptions& options = {},
                       const AttentionExtras<Kokkos::DefaultExecutionSpace>& extras = {},
                       const Workspace& workspace = {}) {
  attention_forward(Kokkos::DefaultExecutionSpace(), q, k, v, out, lse, functor, options, extras, workspace);
}

/// Bytes of workspace with which `attention_forward` with a functor is fastest. It also works without.
///
/// \throws DimensionMismatch as `attention_forward` would
/// \throws NotSupported      as `attention_forward` would
template <ExecutionSpace Exec, Impl::FunctorArgument F>
std::size_t attention_forward_workspace_bytes(const Exec&, const AttentionShape& shape, const F& functor,
                                              const AttentionOptions& options = {},
                                              const AttentionExtras<Exec>& extras = {}) {
  return Impl::functor_workspace_bytes<Exec>(Impl::planned_attention_forward(shape, options, extras.refs()),
                                             functor);
}

/// The same on the default instance.
template <Impl::FunctorArgument F>
std::size_t attention_forward_workspace_bytes(
    const AttentionShape& shape, const F& functor, const AttentionOptions& options = {},
    const AttentionExtras<Kokkos::DefaultExecutionSpace>& extras = {}) {
  return attention_forward_workspace_bytes(Kokkos::DefaultExecutionSpace(), shape, functor, options, extras);
}

/// The exact bytes of workspace that `attention_backward` needs with a functor: linear in the length of the
/// sequences.
///
/// \throws DimensionMismatch as `attention_backward` would
/// \throws NotSupported      as `attention_backward` would
template <ExecutionSpace Exec, Impl::FunctorArgument F>
std::size_t attention_backward_workspace_bytes(const Exec&, const AttentionShape& shape, const F& functor,
                                               const AttentionOptions& options = {},
                                               const AttentionExtras<Exec>& extras = {},
                                               const AttentionExtraGradients<Exec>& gradients = {}) {
  return Impl::functor_workspace_bytes<Exec>(
      Impl::planned_attention_backward(shape, options, extras.refs(), gradients.refs()), functor);
}

/// The same on the default instance.
template <Impl::FunctorArgument F>
std::size_t attention_backward_workspace_bytes(
    const AttentionShape& shape, const F& functor, const AttentionOptions& options = {},
    const AttentionExtras<Kokkos::DefaultExecutionSpace>& extras = {},
    const AttentionExtraGradients<Kokkos::DefaultExecutionSpace>& gradients = {}) {
  return attention_backward_workspace_bytes(Kokkos::DefaultExecutionSpace(), shape, functor, options, extras,
                                            gradients);
}

/// Gradients of `attention_forward` with the same functor: as without, with dS times the derivative of the
/// functor in dq, dk and dbias. The data of the functor get gradients through its member `gradient`, if
/// it has one.
///
/// \param exec      the instance
/// \param operands  the Views, as `AttentionBackwardOperands` names them
/// \param functor   the functor of forward; a score functor needs `derivative`
/// \param options   those of forward
/// \param extras    those of forward
/// \param gradients outputs for the gradients of bias and sinks, if wanted
/// \param workspace at least `attention_backward_workspace_bytes` for a functor
/// \throws DimensionMismatch if extents, strides or storage types do not match, or the workspace is too small
/// \throws NotSupported if an option is out of range or operands cannot be combined
template <ExecutionSpace Exec, class... V, Impl::FunctorArgument F>
void attention_backward(const Exec& exec, const AttentionBackwardOperands<V...>& operands, const F& functor,
                        const AttentionOptions& options = {},
                        const std::type_identity_t<AttentionExtras<Exec>>& extras = {},
                        const std::type_identity_t<AttentionExtraGradients<Exec>>& gradients = {},
                        const Workspace& workspace = {}) {
  using T = Impl::scalar_t<decltype(operands.q)>;
  using C = compute_t<T>;
  Impl::check_functor<F, C>();
  static_assert(
      !AttentionScoreFunctor<F, C> || DifferentiableAttentionScore<F, C>,
      "kformer::attention_backward: a score functor needs `C derivative(C score, AttentionIndex) const`, the "
      "derivative of its operator() with respect to the score");
  auto problem = Impl::attention_backward_problem<Exec>(operands, options, extras.refs(), gradients.refs());
  const auto calls = Impl::attention_calls<C>(functor);
  problem.functor = &calls;
  Impl::check_attention<Exec>(problem);
  Impl::run_with_functor<T, F>(exec, problem, workspace);
}

/// Refused at compile time: the functor stands before the options.
template <ExecutionSpace Exec, class... V, Impl::LateFunctor F, class... More>
void attention_backward(const Exec&, const AttentionBackwardOperands<V...>&, const AttentionOptions&, const F&,
                        const More&...) {
  static_assert(!Impl::LateFunctor<F>,
                "kformer: the functor stands before the options: attention_backward(exec, operands, functor, "
                "options)");
}

/// The same on the default instance.
template <class... V, Impl::LateFunctor F, class... More>
void attention_backward(const AttentionBackwardOperands<V...>&, const AttentionOptions&, const F&,
                        const More&...) {
  static_assert(!Impl::LateFunctor<F>,
                "kformer: the functor stands before the options: attention_backward(operands, functor, "
                "options)");
}

/// The same on the default instance.
template <class... V, Impl::FunctorArgument F>
void attention_backward(const AttentionBackwardOperands<V...>& operands, const F& functor,
                        const AttentionOptions& options = {},
                        const AttentionExtras<Kokkos::DefaultExecutionSpace>& extras = {},
                        const AttentionExtraGradients<Kokkos::DefaultExecutionSpace>& gradients = {},
                        const Workspace& workspace = {}) {
  attention_backward(Kokkos::DefaultExecutionSpace(), operands, functor, options, extras, gradients, workspace);
}

}  // namespace kformer
