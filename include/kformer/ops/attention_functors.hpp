// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>

#include "kformer/ops/impl/flash_backward.hpp"
#include "kformer/ops/impl/flash_forward.hpp"

/// \file
/// Flash attention with masks and scores of your own, in plain C++: the portable kernels, compiled with your
/// functor in your program.

namespace kformer {

/// Says whether a query sees a key: `bool operator()(AttentionIndex) const`, a `KOKKOS_FUNCTION`.
template <class F>
concept AttentionMaskFunctor = requires(const F& f, AttentionIndex at) {
  { f(at) } -> std::same_as<bool>;
};

/// Says what a scaled and soft-capped score becomes: `C operator()(C score, AttentionIndex) const`, a
/// `KOKKOS_FUNCTION`, with C = compute_t<T> of the operands.
template <class F, class C>
concept AttentionScoreFunctor = requires(const F& f, C score, AttentionIndex at) {
  { f(score, at) } -> std::convertible_to<C>;
};

/// A score functor that can go backward: `C derivative(C score, AttentionIndex) const`, a `KOKKOS_FUNCTION`, is
/// the derivative of `operator()` by `score`.
template <class F, class C>
concept DifferentiableAttentionScore = requires(const F& f, C score, AttentionIndex at) {
  { f.derivative(score, at) } -> std::convertible_to<C>;
};

/// A mask functor, a score functor, or both in one.
template <class F, class C>
concept AttentionFunctor = AttentionMaskFunctor<F> || AttentionScoreFunctor<F, C>;

namespace Impl {

/// Scores that a user's functor hides or changes.
template <class F, class C>
struct FunctorScores {
  static constexpr bool plain = false;

  F functor;
  SoftCap<C> softcap;

  KOKKOS_FUNCTION bool hides() const { return AttentionMaskFunctor<F>; }
  template <class Member>
  KOKKOS_FUNCTION bool skips(const Member&, std::int64_t, std::int64_t, std::int64_t, int, std::int64_t,
                             int) const {
    return false;
  }
  KOKKOS_FUNCTION bool sees(const AttentionIndex& at) const {
    if constexpr (AttentionMaskFunctor<F>)
      return functor(at);
    else
      return true;
  }
  KOKKOS_FUNCTION C apply(C scaled, const AttentionIndex& at, std::int64_t) const {
    if constexpr (AttentionScoreFunctor<F, C>)
      return functor(softcap.apply(scaled), at);
    else
      return softcap.apply(scaled);
  }
  KOKKOS_FUNCTION C derivative(C scaled, const AttentionIndex& at) const {
    if constexpr (AttentionScoreFunctor<F, C>)
      return functor.derivative(softcap.apply(scaled), at) * softcap.derivative(scaled);
    else
      return softcap.derivative(scaled);
  }
};

template <class C, class F>
FunctorScores<F, C> functor_scores(const F& functor, const AttentionOptions& options) {
  return {functor, {static_cast<C>(options.softcap)}};
}

template <class V>
using storage_t = typename V::non_const_value_type;

}  // namespace Impl

/// `attention_forward` where `functor` hides pairs (`bool functor(AttentionIndex)`), changes scores (`C
/// functor(C score, AttentionIndex)`), or both. What a mask functor hides is hidden, NaN included; a score of
/// −∞ weighs nothing. The functor sees only pairs that the options leave. Runs on the portable kernel.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param q       (batch, q_len, q_heads, head_dim), T
/// \param k       (batch, kv_len, kv_heads, head_dim), T
/// \param v       (batch, kv_len, kv_heads, v_head_dim), T
/// \param out     (batch, q_len, q_heads, v_head_dim), T, overwritten; saved for backward
/// \param lse     (batch, q_heads, q_len), compute_t<T>, overwritten; saved for backward
/// \param functor copied into the kernels, as a functor of `Kokkos::parallel_for` is
/// \param options scale, causal, window, softcap
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported if an option is out of range
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<3> L,
          AttentionFunctor<compute_t<Impl::storage_t<Q>>> F>
void attention_forward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                       const F& functor, const AttentionOptions& options = {}) {
  using T = Impl::storage_t<Q>;
  static_assert(Impl::all_accessible<Exec, Q, K, V, O, L>,
                "kformer: Views must be accessible from the execution space");
  const Impl::AttentionForward problem{tensor_ref(q), tensor_ref(k), tensor_ref(v), tensor_ref(out), tensor_ref(lse), options, {}};
  problem.check();
  Impl::flash_forward<T>(exec, problem, Impl::functor_scores<compute_t<T>>(functor, options));
}

/// Bytes of workspace `attention_backward` needs with a functor, exactly: linear in the queries.
///
/// \throws DimensionMismatch, NotSupported as `attention_backward` would
template <class Exec, class F>
  requires AttentionFunctor<F, float> || AttentionFunctor<F, double>
std::size_t attention_backward_workspace_bytes(const Exec&, const AttentionShape& shape, const F&,
                                               const AttentionOptions& options = {}) {
  const auto problem = Impl::planned_attention_backward(shape, options, {}, {});
  problem.check();
  return Impl::attention_backward_workspace(problem);
}

/// Gradients of `attention_forward` with the same functor: as without, with dS times the derivative of the
/// functor in dq and dk. What the functor itself refers to gets no gradient.
///
/// \param exec      the instance
/// \param q         (batch, q_len, q_heads, head_dim), T
/// \param k         (batch, kv_len, kv_heads, head_dim), T
/// \param v         (batch, kv_len, kv_heads, v_head_dim), T
/// \param out       (batch, q_len, q_heads, v_head_dim), T, saved by forward
/// \param lse       (batch, q_heads, q_len), compute_t<T>, saved by forward
/// \param dout      like out, T
/// \param dq        like q, overwritten
/// \param dk        like k, overwritten
/// \param dv        like v, overwritten
/// \param functor   that of forward; a score functor needs `derivative`
/// \param options   those of forward
/// \param workspace at least what `attention_backward_workspace_bytes` says for a functor
/// \throws DimensionMismatch if extents, strides or storage types do not fit, or the workspace is too small
/// \throws NotSupported if an option is out of range
template <class Exec, ViewOf<4> Q, ViewOf<4> K, ViewOf<4> V, ViewOf<4> O, ViewOf<3> L, ViewOf<4> DO,
          ViewOf<4> DQ, ViewOf<4> DK, ViewOf<4> DV, AttentionFunctor<compute_t<Impl::storage_t<Q>>> F>
void attention_backward(const Exec& exec, const Q& q, const K& k, const V& v, const O& out, const L& lse,
                        const DO& dout, const DQ& dq, const DK& dk, const DV& dv, const F& functor,
                        const AttentionOptions& options, const Workspace& workspace) {
  using T = Impl::storage_t<Q>;
  using C = compute_t<T>;
  static_assert(Impl::all_accessible<Exec, Q, K, V, O, L, DO, DQ, DK, DV>,
                "kformer: Views must be accessible from the execution space");
  static_assert(
      !AttentionScoreFunctor<F, C> || DifferentiableAttentionScore<F, C>,
      "kformer::attention_backward: a score functor needs `C derivative(C score, AttentionIndex) const`, "
      "the derivative of its operator() by the score");
  const Impl::AttentionBackward problem{tensor_ref(q),  tensor_ref(k),  tensor_ref(v),  tensor_ref(out), tensor_ref(lse), tensor_ref(dout),
                                        tensor_ref(dq), tensor_ref(dk), tensor_ref(dv), options,    {},         {}};
  problem.check();
  problem.operands().require_workspace(workspace, Impl::attention_backward_workspace(problem));
  if constexpr (!AttentionScoreFunctor<F, C> || DifferentiableAttentionScore<F, C>)
    Impl::flash_backward<T>(exec, problem, Impl::functor_scores<C>(functor, options), workspace);
}

}  // namespace kformer
