// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/swiglu.hpp"
#include "ops/common/launch.hpp"

/// \file
/// The portable kernels of SwiGLU: one team per stretch of a row.

namespace kformer::Impl {

/// σ(g) and σ(−g), each to full relative precision.
template <class C>
struct Sigmoid {
  C value, complement;
  KOKKOS_FUNCTION explicit Sigmoid(C g) {
    const C e = Kokkos::exp(-Kokkos::abs(g)), larger = C(1) / (C(1) + e), smaller = e * larger;
    value = g < 0 ? smaller : larger;
    complement = g < 0 ? larger : smaller;
  }
};

/// a · b, where a zero wins over an infinity: the limit of g·σ(g) and its like at ±∞.
template <class C>
KOKKOS_INLINE_FUNCTION C vanishing_product(C a, C b) {
  return b == 0 ? C(0) : a * b;
}

/// Columns of one team: a row is cut so that few long rows fill a device too.
inline constexpr std::int64_t swiglu_columns = 2048;

template <class T, class Exec>
void swiglu_forward_kokkos(const Exec& exec, const SwigluForward& p) {
  using C = compute_t<T>;
  const auto gate = p.gate.as<const T, 2>(), up = p.up.as<const T, 2>();
  const auto y = p.y.as<T, 2>();
  const std::int64_t hidden = p.gate.extent[1], blocks = ceil_div(hidden, swiglu_columns);
  Kokkos::parallel_for(
      "kformer::swiglu_forward[kokkos]", team_policy(exec, p.gate.extent[0] * blocks, hidden),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank() / blocks,
                           begin = team.league_rank() % blocks * swiglu_columns;
        const T* g = gate.data + row * gate.stride[0];
        const T* u = up.data + row * up.stride[0];
        T* out = y.data + row * y.stride[0];
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, begin, Kokkos::min(hidden, begin + swiglu_columns)),
                             [&](std::int64_t h) {
                               const C value = static_cast<C>(g[h]);
                               const Sigmoid<C> sigmoid(value);
                               out[h] = T(vanishing_product(value, sigmoid.value) * static_cast<C>(u[h]));
                             });
      });
}

template <class T, class Exec>
void swiglu_backward_kokkos(const Exec& exec, const SwigluBackward& p) {
  using C = compute_t<T>;
  const auto gate = p.gate.as<const T, 2>(), up = p.up.as<const T, 2>(), dy = p.dy.as<const T, 2>();
  const auto dgate = p.dgate.as<T, 2>(), dup = p.dup.as<T, 2>();
  const std::int64_t hidden = p.gate.extent[1], blocks = ceil_div(hidden, swiglu_columns);
  Kokkos::parallel_for(
      "kformer::swiglu_backward[kokkos]", team_policy(exec, p.gate.extent[0] * blocks, hidden),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank() / blocks,
                           begin = team.league_rank() % blocks * swiglu_columns;
        const T* g = gate.data + row * gate.stride[0];
        const T* u = up.data + row * up.stride[0];
        const T* d = dy.data + row * dy.stride[0];
        T* dg = dgate.data + row * dgate.stride[0];
        T* du = dup.data + row * dup.stride[0];
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, begin, Kokkos::min(hidden, begin + swiglu_columns)),
                             [&](std::int64_t h) {
                               // All is read before anything is written, because outputs may be inputs.
                               const C value = static_cast<C>(g[h]), through = static_cast<C>(d[h]),
                                       factor = static_cast<C>(u[h]);
                               const Sigmoid<C> sigmoid(value);
                               const C slope =
                                   sigmoid.value + vanishing_product(value, sigmoid.value * sigmoid.complement);
                               dg[h] = T(through * factor * slope);
                               du[h] = T(through * vanishing_product(value, sigmoid.value));
                             });
      });
}

}  // namespace kformer::Impl
