// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/impl/fast_exp.hpp"
#include "kformer/ops/impl/launch.hpp"

/// \file
/// The portable kernels of cross entropy: one team per row.

namespace kformer::Impl {

template <class T, class Exec>
void cross_entropy_forward_kokkos(const Exec& exec, const CrossEntropyForward& p) {
  using C = compute_t<T>;
  const auto logits = p.logits.as<const T, 2>();
  const auto targets = p.targets.as<const std::int32_t, 1>();
  const auto loss = p.loss.as<C, 1>(), lse = p.lse.as<C, 1>();
  const std::int64_t vocabulary = p.logits.extent[1];
  const std::int32_t ignore_index = p.options.ignore_index;
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
            [&](std::int64_t v, C& best) { best = Kokkos::max(best, static_cast<C>(x[v])); },
            Kokkos::Max<C>(largest));
        // A row of −∞ only must not become ∞ − ∞: Kokkos 5 starts the maximum at −∞, Kokkos 4 at the lowest
        // number.
        const C lowest = Kokkos::Experimental::finite_min_v<C>;
        largest = Kokkos::max(largest, lowest);
        C sum;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, vocabulary),
            [&](std::int64_t v, C& partial) { partial += fast_exp(static_cast<C>(x[v]) - largest); }, sum);
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          const bool valid = target >= 0 && target < vocabulary;
          lse(row) = largest + Kokkos::log(sum);
          loss(row) = valid ? lse(row) - static_cast<C>(x[target]) : Kokkos::Experimental::quiet_NaN_v<C>;
        });
      });
}

template <class T, class Exec>
void cross_entropy_backward_kokkos(const Exec& exec, const CrossEntropyBackward& p) {
  using C = compute_t<T>;
  const auto logits = p.logits.as<const T, 2>();
  const auto targets = p.targets.as<const std::int32_t, 1>();
  const auto lse = p.lse.as<const C, 1>(), dloss = p.dloss.as<const C, 1>();
  const auto dlogits = p.dlogits.as<T, 2>();
  const std::int64_t vocabulary = p.logits.extent[1];
  const std::int32_t ignore_index = p.options.ignore_index;
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
        // The target is set on its own, so that the loop vectorises; its logit is read before it may be written
        // over.
        const C target_logit = valid ? static_cast<C>(x[target]) : C(0);
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, vocabulary),
                             [&](std::int64_t v) { dx[v] = T(fast_exp(static_cast<C>(x[v]) - shift) * d); });
        team.team_barrier();
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          if (valid) dx[target] = T((fast_exp(target_logit - shift) - C(1)) * d);
        });
      });
}

}  // namespace kformer::Impl
