// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/fast_exp.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "kformer/ops/swiglu.hpp"

/// \file
/// The portable kernels of SwiGLU: one team per stretch of a row.

namespace kformer::Impl {

/// silu(g) = g · σ(g) and its derivative, with σ(g) and σ(−g) both from e^(−|g|), so that nothing overflows or
/// cancels. The sign enters as a number, because compilers do not vectorise what they turn into branches. No
/// infinity meets a zero: at ±∞ the limits come out.
template <class C>
struct Silu {
  C value, slope;
  KOKKOS_FUNCTION explicit Silu(C g) {
    const C half_sign = Kokkos::copysign(C(0.5), g);
    const C positive = C(0.5) + half_sign, negative = C(0.5) - half_sign;  // 1 and 0, or 0 and 1
    const C e = fast_exp(-Kokkos::abs(g)), near = C(1) / (C(1) + e);
    const C sigmoid = (positive + negative * e) * near, complement = (negative + positive * e) * near;
    const C largest = Kokkos::Experimental::finite_max_v<C>;
    const C not_below = g < -largest ? -largest : g, finite = not_below > largest ? largest : not_below;
    value = not_below * sigmoid;
    slope = sigmoid + finite * (sigmoid * complement);
  }
};

/// Columns of one team: a row is cut so that few long rows fill a device too.
inline constexpr std::int64_t swiglu_columns = 2048;

/// Calls `body(team, row, begin, end)` for one stretch of a row per team.
template <class Exec, class Body>
struct SwigluStretches {
  Body body;
  std::int64_t hidden, blocks;

  KOKKOS_FUNCTION void operator()(const TeamMember<Exec>& team) const {
    const std::int64_t begin = team.league_rank() % blocks * swiglu_columns;
    body(team, team.league_rank() / blocks, begin, Kokkos::min(hidden, begin + swiglu_columns));
  }
};

template <class Exec, class Body>
void for_each_swiglu_stretch(const char* label, const Exec& exec, const TensorRef& gate, const Body& body) {
  const std::int64_t hidden = gate.extent[1], blocks = ceil_div(hidden, swiglu_columns);
  Kokkos::parallel_for(label, team_policy(exec, gate.extent[0] * blocks, hidden),
                       SwigluStretches<Exec, Body>{body, hidden, blocks});
}

template <class T, class Exec>
void swiglu_forward_kokkos(const Exec& exec, const SwigluForward& p) {
  using C = compute_t<T>;
  const auto gate = p.gate.as<const T, 2>(), up = p.up.as<const T, 2>();
  const auto y = p.y.as<T, 2>();
  for_each_swiglu_stretch(
      "kformer::swiglu_forward[kokkos]", exec, p.gate,
      KOKKOS_LAMBDA(const TeamMember<Exec>& team, std::int64_t row, std::int64_t begin, std::int64_t end) {
        const T* g = gate.data + row * gate.stride[0];
        const T* u = up.data + row * up.stride[0];
        T* out = y.data + row * y.stride[0];
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, begin, end), [&](std::int64_t h) {
          out[h] = T(Silu<C>(static_cast<C>(g[h])).value * static_cast<C>(u[h]));
        });
      });
}

template <class T, class Exec>
void swiglu_backward_kokkos(const Exec& exec, const SwigluBackward& p) {
  using C = compute_t<T>;
  const auto gate = p.gate.as<const T, 2>(), up = p.up.as<const T, 2>(), dy = p.dy.as<const T, 2>();
  const auto dgate = p.dgate.as<T, 2>(), dup = p.dup.as<T, 2>();
  for_each_swiglu_stretch(
      "kformer::swiglu_backward[kokkos]", exec, p.gate,
      KOKKOS_LAMBDA(const TeamMember<Exec>& team, std::int64_t row, std::int64_t begin, std::int64_t end) {
        const T* g = gate.data + row * gate.stride[0];
        const T* u = up.data + row * up.stride[0];
        const T* d = dy.data + row * dy.stride[0];
        T* dg = dgate.data + row * dgate.stride[0];
        T* du = dup.data + row * dup.stride[0];
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, begin, end), [&](std::int64_t h) {
          // All is read before anything is written, because outputs may be inputs.
          const Silu<C> silu(static_cast<C>(g[h]));
          const C factor = static_cast<C>(u[h]), through = static_cast<C>(d[h]);
          dg[h] = T(through * factor * silu.slope);
          du[h] = T(through * silu.value);
        });
      });
}

}  // namespace kformer::Impl
