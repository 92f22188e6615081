// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/impl/fast_exp.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "kformer/ops/impl/soft_cap.hpp"

/// \file
/// The portable kernels of cross entropy: one team per row.

namespace kformer::Impl {

/// What the target distribution gives the target and any other token.
template <class C>
struct TargetShares {
  C target, other;

  TargetShares(double smoothing, std::int64_t vocabulary) {
    const double part = smoothing / static_cast<double>(vocabulary);
    target = static_cast<C>(1 - smoothing + part);
    other = static_cast<C>(part);
  }
};

template <class T, class Cap, class Exec>
void cross_entropy_forward_kokkos(const Exec& exec, const CrossEntropyForward& p, const Cap& cap) {
  using C = compute_t<T>;
  const auto logits = p.logits.as<const T, 2>();
  const auto targets = p.targets.as<const std::int32_t, 1>();
  const auto loss = p.loss.as<C, 1>(), lse = p.lse.as<C, 1>();
  const std::int64_t vocabulary = p.logits.extent[1];
  const std::int32_t ignore_index = p.options.ignore_index;
  const C smoothing = static_cast<C>(p.options.label_smoothing), z_loss = static_cast<C>(p.options.z_loss);
  Kokkos::parallel_for(
      "kformer::cross_entropy_forward[kokkos]", team_policy(exec, p.logits.extent[0], vocabulary),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank();
        const std::int32_t target = targets(row);
        if (target == ignore_index) {
          Kokkos::single(Kokkos::PerTeam(team), [&] { loss(row) = lse(row) = 0; });
          return;
        }
        const T* x = logits.data + row * logits.stride[0];
        C largest;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, vocabulary),
            [&](std::int64_t v, C& best) { best = Kokkos::max(best, cap.apply(static_cast<C>(x[v]))); },
            Kokkos::Max<C>(largest));
        // A row of −∞ only must not become ∞ − ∞: Kokkos 5 starts the maximum at −∞, Kokkos 4 at the lowest
        // number.
        const C lowest = Kokkos::Experimental::finite_min_v<C>;
        largest = Kokkos::max(largest, lowest);
        C sum, below = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, vocabulary),
            [&](std::int64_t v, C& partial) { partial += fast_exp(cap.apply(static_cast<C>(x[v])) - largest); },
            sum);
        if (smoothing > C(0))
          Kokkos::parallel_reduce(
              Kokkos::TeamVectorRange(team, vocabulary),
              [&](std::int64_t v, C& partial) { partial += largest - cap.apply(static_cast<C>(x[v])); }, below);
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          const bool valid = target >= 0 && target < vocabulary;
          const C z = valid ? cap.apply(static_cast<C>(x[target])) : Kokkos::Experimental::quiet_NaN_v<C>;
          // No term is negative: nothing cancels, however large the logits.
          C total = Kokkos::log(sum) + (C(1) - smoothing) * (largest - z);
          lse(row) = largest + Kokkos::log(sum);
          if (smoothing > C(0)) total += smoothing * (below / static_cast<C>(vocabulary));
          if (z_loss > C(0)) total += z_loss * lse(row) * lse(row);
          loss(row) = total;
        });
      });
}

template <class T, class Cap, class Exec>
void cross_entropy_backward_kokkos(const Exec& exec, const CrossEntropyBackward& p, const Cap& cap) {
  using C = compute_t<T>;
  const auto logits = p.logits.as<const T, 2>();
  const auto targets = p.targets.as<const std::int32_t, 1>();
  const auto lse = p.lse.as<const C, 1>(), dloss = p.dloss.as<const C, 1>();
  const auto dlogits = p.dlogits.as<T, 2>();
  const std::int64_t vocabulary = p.logits.extent[1];
  const std::int32_t ignore_index = p.options.ignore_index;
  const C z_loss = static_cast<C>(p.options.z_loss);
  const TargetShares<C> share(p.options.label_smoothing, vocabulary);
  Kokkos::parallel_for(
      "kformer::cross_entropy_backward[kokkos]", team_policy(exec, p.logits.extent[0], vocabulary),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank();
        const std::int32_t target = targets(row);
        const T* x = logits.data + row * logits.stride[0];
        T* dx = dlogits.data + row * dlogits.stride[0];
        if (target == ignore_index) {
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, vocabulary),
                               [&](std::int64_t v) { dx[v] = T(C(0)); });
          return;
        }
        const bool valid = target >= 0 && target < vocabulary;
        const C shift = lse(row), d = valid ? dloss(row) : Kokkos::Experimental::quiet_NaN_v<C>;
        const C pull = C(1) + C(2) * z_loss * shift;
        const auto gradient = [=](C logit, C expected) {
          return (fast_exp(cap.apply(logit) - shift) * pull - expected) * cap.derivative(logit) * d;
        };
        // The target is set on its own, so that the loop vectorises; its logit is read before it may be written
        // over.
        const C target_logit = valid ? static_cast<C>(x[target]) : C(0);
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, vocabulary),
                             [&](std::int64_t v) { dx[v] = T(gradient(static_cast<C>(x[v]), share.other)); });
        team.team_barrier();
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          if (valid) dx[target] = T(gradient(target_logit, share.target));
        });
      });
}

/// Calls `f` with what a soft cap of this size does to logits; 0: nothing.
template <class C, class F>
void with_soft_cap(double softcap, F f) {
  if (softcap > 0)
    f(SoftCap<C>{static_cast<C>(softcap)});
  else
    f(NoCap<C>{});
}

}  // namespace kformer::Impl
