// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/launch.hpp"
#include "kformer/ops/ternary.hpp"
#include "ops/quantized/rules.hpp"

/// \file
/// Ternary quantisation on every backend. The mean is summed row by row, then over the rows, in an order that
/// does not depend on the number of threads of a host.

namespace kformer::Impl {

/// The sum of each row, and behind them the mean.
inline std::size_t ternary_quantize_workspace(const TernaryQuantize& p) {
  return static_cast<std::size_t>(p.weight.extent[0] + 1) * sizeof(double);
}

/// A weight of magnitude mean goes to ±1, and to 0 below half of that.
KOKKOS_INLINE_FUNCTION int ternary_code(float weight, float by_mean) {
  return nearest_code(weight * by_mean, -1, 1);
}

template <class T, class Exec>
void ternary_mean_kokkos(const Exec& exec, const TernaryQuantize& p, double* sums) {
  const auto weight = p.weight.as<const T, 2>();
  const std::int64_t rows = p.weight.extent[0], cols = p.weight.extent[1];
  Kokkos::parallel_for(
      "kformer::ternary_quantize[kokkos, rows]", team_policy(exec, rows, cols),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank();
        double sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, cols),
            [&](std::int64_t i, double& part) {
              part += Kokkos::fabs(static_cast<double>(static_cast<compute_t<T>>(weight(row, i))));
            },
            sum);
        Kokkos::single(Kokkos::PerTeam(team), [&] { sums[row] = sum; });
      });
  Kokkos::parallel_for(
      "kformer::ternary_quantize[kokkos, mean]", team_policy(exec, 1, rows),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        double sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, rows), [&](std::int64_t row, double& part) { part += sums[row]; },
            sum);
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          sums[rows] = sum / static_cast<double>(Kokkos::max<std::int64_t>(1, rows * cols));
        });
      });
}

template <QuantizedFormat format, class T, class Exec>
void ternary_quantize_kokkos(const Exec& exec, const TernaryQuantize& p, const Workspace& workspace) {
  using Block = QuantizedBlock<format>;
  auto* sums = static_cast<double*>(workspace.data);
  ternary_mean_kokkos<T>(exec, p, sums);
  const auto weight = p.weight.as<const T, 2>();
  auto* data = reinterpret_cast<std::uint8_t*>(p.matrix.data);
  const std::int64_t rows = p.weight.extent[0], cols = p.weight.extent[1];
  const std::int64_t blocks = ceil_div<std::int64_t>(cols, Block::weights);
  Kokkos::parallel_for(
      "kformer::ternary_quantize[kokkos]", Kokkos::RangePolicy<Exec>(exec, 0, rows * blocks),
      KOKKOS_LAMBDA(std::int64_t index) {
        const std::int64_t row = index / blocks, first = index % blocks * Block::weights;
        // A sum with an infinity in it is one; a scale must say that no code does.
        const auto mean = static_cast<float>(sums[rows]);
        const float by_mean = inverse(mean);
        int codes[Block::weights] = {};
        for (int i = 0; i < Block::weights; ++i)
          if (first + i < cols) codes[i] = ternary_code(static_cast<float>(weight(row, first + i)), by_mean);
        Block::store(data + index * Block::bytes, codes,
                     is_finite(mean) ? mean : Kokkos::Experimental::quiet_NaN_v<float>, 0);
      });
}

template <class T, class Exec>
void ternary_activations_kokkos(const Exec& exec, const TernaryActivations& p) {
  using C = compute_t<T>;
  const auto x = p.x.as<const T, 2>();
  const auto y = p.y.as<T, 2>();
  const std::int64_t in = p.x.extent[1];
  Kokkos::parallel_for(
      "kformer::ternary_activations[kokkos]", team_policy(exec, p.x.extent[0], in),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank();
        C greatest = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, in),
            [&](std::int64_t i, C& most) {
              most = Kokkos::fmax(most, ActivationScale<C>::magnitude(static_cast<C>(x(row, i))));
            },
            Kokkos::Max<C>(greatest));
        const ActivationScale<C> scale(in > 0 ? greatest : C(0));
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, in), [&](std::int64_t i) {
          y(row, i) = T(scale.scale * static_cast<C>(scale.code(static_cast<C>(x(row, i)))));
        });
      });
}

}  // namespace kformer::Impl
