// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/launch.hpp"
#include "kformer/ops/rope.hpp"

/// \file
/// The portable kernels of the rotary embedding: one team per block of positions for the tables, one team per
/// token for the rotation.

namespace kformer::Impl {

KOKKOS_INLINE_FUNCTION double rope_frequency(std::int64_t i, std::int64_t half, double theta,
                                             const RopeScaling& s) {
  const double frequency = Kokkos::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
  if (s.rope_type == RopeType::none) return frequency;
  // How often the pair turns within the original context decides: often, seldom, or between.
  const double turns =
      static_cast<double>(s.original_max_position_embeddings) * frequency / (2 * Kokkos::numbers::pi);
  const double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  const double share = Kokkos::fmin(1.0, Kokkos::fmax(0.0, kept));
  return frequency * (share + (1 - share) / s.factor);
}

template <class C, class Exec>
void rope_tables_kokkos(const Exec& exec, const RopeTables& p) {
  const auto cos = p.cos.as<C, 2>(), sin = p.sin.as<C, 2>();
  const std::int64_t positions = p.cos.extent[0], half = p.cos.extent[1];
  const double theta = p.options.theta;
  const RopeScaling scaling = p.options.scaling;
  constexpr std::int64_t block = 32;  // one power serves so many sines
  Kokkos::parallel_for(
      "kformer::rope_tables[kokkos]", team_policy(exec, ceil_div(positions, block), half),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t first = team.league_rank() * block;
        const std::int64_t last = Kokkos::min(positions, first + block);
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, half), [&](std::int64_t i) {
          const double frequency = rope_frequency(i, half, theta, scaling);
          for (std::int64_t position = first; position < last; ++position) {
            const double angle = static_cast<double>(position) * frequency;
            cos(position, i) = static_cast<C>(Kokkos::cos(angle));
            sin(position, i) = static_cast<C>(Kokkos::sin(angle));
          }
        });
      });
}

/// Rotates the pairs (x[step·i], y[step·i]) of one head.
template <int step, class Member, class T, class C>
KOKKOS_INLINE_FUNCTION void rope_rotate_pairs(const Member& team, T* x, T* y, const C* cos, const C* sin,
                                              C direction, std::int64_t half) {
  Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, half), [&](std::int64_t i) {
    const C u = static_cast<C>(x[step * i]), v = static_cast<C>(y[step * i]);
    const C c = cos[i], s = direction * sin[i];
    x[step * i] = T(u * c - v * s);
    y[step * i] = T(v * c + u * s);
  });
}

/// `direction` is +1 forward and −1 backward.
template <class T, class Exec>
void rope_rotate_kokkos(const Exec& exec, const char* label, const RopeRotation& p, int direction) {
  using C = compute_t<T>;
  const auto q = p.q.as<T, 4>(), k = p.k.as<T, 4>();
  const auto cos = p.cos.as<const C, 2>(), sin = p.sin.as<const C, 2>();
  const auto positions = p.positions.as<const std::int32_t, 2>();
  const bool consecutive = !p.positions.present();
  const bool half_split = p.layout == RopeLayout::half_split;
  const std::int64_t first_position = p.first_position;
  const std::int64_t seq = p.q.extent[1], q_heads = p.q.extent[2], kv_heads = p.k.extent[2];
  const std::int64_t half = p.q.extent[3] / 2;
  Kokkos::parallel_for(
      label, team_policy(exec, p.q.extent[0] * seq, (q_heads + kv_heads) * half),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t b = team.league_rank() / seq, s = team.league_rank() % seq;
        const std::int64_t position =
            consecutive ? first_position + s : positions(positions.extent[0] == 1 ? 0 : b, s);
        const bool inside = position >= 0 && position < cos.extent[0];
        const C* c = cos.data + (inside ? position * cos.stride[0] : 0);
        const C* d = sin.data + (inside ? position * sin.stride[0] : 0);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, q_heads + kv_heads), [&](std::int64_t h) {
          const Strided<T, 4>& x = h < q_heads ? q : k;
          T* head = x.data + b * x.stride[0] + s * x.stride[1] + (h < q_heads ? h : h - q_heads) * x.stride[2];
          if (!inside) {
            Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, 2 * half),
                                 [&](std::int64_t i) { head[i] = T(Kokkos::Experimental::quiet_NaN_v<C>); });
          } else if (half_split) {
            rope_rotate_pairs<1>(team, head, head + half, c, d, static_cast<C>(direction), half);
          } else {
            rope_rotate_pairs<2>(team, head, head + 1, c, d, static_cast<C>(direction), half);
          }
        });
      });
}

}  // namespace kformer::Impl
