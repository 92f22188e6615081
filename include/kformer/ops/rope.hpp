// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstdint>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/core/types/rope.hpp"

/// \file
/// Rotary position embedding (Su et al., arXiv:2104.09864, eq. 34), with the frequency scaling of Llama 3.

namespace kformer {

namespace Impl {

struct RopeTables {
  static constexpr const char* op = "rope";
  static constexpr const char* function = "rope_tables";
  TensorRef cos, sin;
  RopeOptions options;
  Operands operands() const;
  void check() const;
};

/// The checks of the options, under the name of the function or class that `all` belongs to.
/// \throws NotSupported
void check_rope_options(const Operands& all, const RopeOptions& options);

/// What both directions share; `positions` is absent where the position is `first_position` + index.
struct RopeRotation {
  TensorRef q, k, cos, sin, positions;
  std::int64_t first_position;
  RopeLayout layout;
};

struct RopeForward : RopeRotation {
  static constexpr const char* op = "rope";
  static constexpr const char* function = "rope_forward";
  Operands operands() const;
  void check() const;
};

/// `q` and `k` are the gradients.
struct RopeBackward : RopeRotation {
  static constexpr const char* op = "rope";
  static constexpr const char* function = "rope_backward";
  Operands operands() const;
  void check() const;
};

/// Where tokens stand: a View of their positions, or the position of the first one.
template <class P>
concept RopePositions = AnyView<P> || std::integral<P>;

/// Runs `Direction`, which is `RopeForward` or `RopeBackward`.
template <class Direction, class Exec, class Q, class K, class C, class S, class P>
void rotate(const Exec& exec, const Q& q, const K& k, const C& cos, const S& sin, const P& positions,
            RopeLayout layout) {
  using T = scalar_t<Q>;
  Direction problem{{output<Exec, T, 4>(q), output<Exec, T, 4>(k), input<Exec, compute_t<T>, 2>(cos),
                     input<Exec, compute_t<T>, 2>(sin), TensorRef(), 0, layout}};
  if constexpr (std::integral<P>)
    problem.first_position = positions;
  else
    problem.positions = input<Exec, std::int32_t, 2>(positions);
  call(exec, problem);
}

}  // namespace Impl

/// Fills the tables that `rope_forward` and `rope_backward` read: `cos(p · f_i)` and `sin(p · f_i)` for each
/// position `p` and pair `i`, with `f_i = theta^(−2i / head_dim)`, scaled as `options.scaling` says. Angles are
/// computed in double whatever the type of the tables.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param cos     (positions, head_dim / 2), float or double, overwritten
/// \param sin     (positions, head_dim / 2), the same type, overwritten
/// \param options `theta` and `scaling`; `layout` is not read
/// \throws DimensionMismatch if extents, strides or types do not fit
/// \throws NotSupported      if an option is out of its range
template <ExecutionSpace Exec, AnyView C, AnyView S>
void rope_tables(const Exec& exec, const C& cos, const S& sin, const RopeOptions& options = {}) {
  using T = Impl::scalar_t<C>;
  const Impl::RopeTables problem{Impl::output<Exec, compute_t<T>, 2>(cos),
                                 Impl::output<Exec, compute_t<T>, 2>(sin), options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView C, AnyView S>
void rope_tables(const C& cos, const S& sin, const RopeOptions& options = {}) {
  rope_tables(Kokkos::DefaultExecutionSpace(), cos, sin, options);
}

/// Rotates queries and keys in place. For the pair `(a, b)` of components that `layout` names, at position `p`:
/// `(a, b) ← (a·cos − b·sin, b·cos + a·sin)` with `cos`, `sin` the tables at `(p, i)`.
///
/// A row whose position is outside the tables becomes NaN; nothing outside them is read.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param q         (batch, seq, q_heads, head_dim), T, changed in place; head_dim is even
/// \param k         (batch, seq, kv_heads, head_dim), T, changed in place
/// \param cos       (table positions, head_dim / 2), compute_t<T>
/// \param sin       (table positions, head_dim / 2), compute_t<T>
/// \param positions (batch, seq) or, the same for the whole batch, (1, seq), int32; or an integer, the position
///                  of the first element of every sequence, after which positions are consecutive
/// \param layout    which components form a pair
/// \throws DimensionMismatch if extents, strides or types do not fit, or head_dim is odd
/// \throws NotSupported      if `layout` has no such value
template <ExecutionSpace Exec, AnyView Q, AnyView K, AnyView C, AnyView S, Impl::RopePositions P = std::int64_t>
void rope_forward(const Exec& exec, const Q& q, const K& k, const C& cos, const S& sin, const P& positions = 0,
                  RopeLayout layout = RopeLayout::half_split) {
  Impl::rotate<Impl::RopeForward>(exec, q, k, cos, sin, positions, layout);
}

/// The same on the default instance.
template <AnyView Q, AnyView K, AnyView C, AnyView S, Impl::RopePositions P = std::int64_t>
void rope_forward(const Q& q, const K& k, const C& cos, const S& sin, const P& positions = 0,
                  RopeLayout layout = RopeLayout::half_split) {
  rope_forward(Kokkos::DefaultExecutionSpace(), q, k, cos, sin, positions, layout);
}

/// Gradients of `rope_forward`, in place: the rotation by the opposite angle, because a rotation's transpose is
/// its inverse. On entry `dq`, `dk` are the gradients of the rotated queries and keys, on return those of the
/// unrotated ones. Nothing of forward is needed but the tables.
///
/// \param exec      the instance
/// \param dq        (batch, seq, q_heads, head_dim), T, changed in place; head_dim is even
/// \param dk        (batch, seq, kv_heads, head_dim), T, changed in place
/// \param cos       (table positions, head_dim / 2), compute_t<T>
/// \param sin       (table positions, head_dim / 2), compute_t<T>
/// \param positions (batch, seq) or (1, seq), int32, or the first position, as in forward
/// \param layout    as in forward
/// \throws DimensionMismatch if extents, strides or types do not fit, or head_dim is odd
/// \throws NotSupported      if `layout` has no such value
template <ExecutionSpace Exec, AnyView Q, AnyView K, AnyView C, AnyView S, Impl::RopePositions P = std::int64_t>
void rope_backward(const Exec& exec, const Q& dq, const K& dk, const C& cos, const S& sin,
                   const P& positions = 0, RopeLayout layout = RopeLayout::half_split) {
  Impl::rotate<Impl::RopeBackward>(exec, dq, dk, cos, sin, positions, layout);
}

/// The same on the default instance.
template <AnyView Q, AnyView K, AnyView C, AnyView S, Impl::RopePositions P = std::int64_t>
void rope_backward(const Q& dq, const K& dk, const C& cos, const S& sin, const P& positions = 0,
                   RopeLayout layout = RopeLayout::half_split) {
  rope_backward(Kokkos::DefaultExecutionSpace(), dq, dk, cos, sin, positions, layout);
}

}  // namespace kformer
