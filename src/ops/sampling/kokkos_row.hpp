// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/fast_exp.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "ops/sampling/logits.hpp"

/// \file
/// Searches and sums of a team over a row of logits. Every thread of the team gets the result.

namespace kformer::Impl {

template <class Member>
struct SamplingRow {
  const Member& team;
  std::int64_t vocabulary;

  /// Σ f(v) over [begin, end): exact, so the same in any order.
  template <class F>
  KOKKOS_FUNCTION std::uint64_t sum(std::int64_t begin, std::int64_t end, const F& f) const {
    std::uint64_t total = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, begin, end),
        [&](std::int64_t v, std::uint64_t& part) { part += static_cast<std::uint64_t>(f(v)); }, total);
    return total;
  }
  template <class F>
  KOKKOS_FUNCTION std::uint64_t sum(const F& f) const {
    return sum(0, vocabulary, f);
  }

  /// The smallest v with f(0) + … + f(v) > rest, where the sum of all is.
  template <class F>
  KOKKOS_FUNCTION std::int64_t find_prefix(std::uint64_t rest, const F& f) const {
    std::int64_t begin = 0, end = vocabulary;
    while (end - begin > 1) {
      const std::int64_t middle = begin + (end - begin) / 2;
      const std::uint64_t part = sum(begin, middle, f);
      if (rest < part) {
        end = middle;
      } else {
        rest -= part;
        begin = middle;
      }
    }
    return begin;
  }

  /// The largest t below 2^bits with `holds(t)`, which is true of 0 and false from some t on.
  template <class F>
  KOKKOS_FUNCTION std::uint64_t largest_with(int bits, const F& holds) const {
    std::uint64_t t = 0;
    for (std::uint64_t bit = std::uint64_t{1} << (bits - 1); bit > 0; bit >>= 1)
      if (holds(t | bit)) t |= bit;
    return t;
  }

  /// The largest f(v), 0 without any.
  template <class F>
  KOKKOS_FUNCTION std::uint64_t largest(const F& f) const {
    std::uint64_t best = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, vocabulary),
        [&](std::int64_t v, std::uint64_t& part) { part = Kokkos::max(part, f(v)); },
        Kokkos::Max<std::uint64_t>(best));
    return best;
  }

  /// The smallest v with f(v).
  template <class F>
  KOKKOS_FUNCTION std::int64_t first(const F& f) const {
    std::int64_t best = vocabulary;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, vocabulary),
        [&](std::int64_t v, std::int64_t& part) { part = f(v) && v < part ? v : part; },
        Kokkos::Min<std::int64_t>(best));
    return best;
  }

  /// The log-softmax of the row at `token`, whose logit `z(token)` is a counted one; NaN for a row of −∞ only.
  template <class C, class F>
  KOKKOS_FUNCTION C log_probability(std::int64_t token, const F& z) const {
    C largest;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, vocabulary),
        [&](std::int64_t v, C& best) { best = Kokkos::max(best, z(v)); }, Kokkos::Max<C>(largest));
    const C lowest = Kokkos::Experimental::finite_min_v<C>;
    const C shift = Kokkos::max(largest, lowest);  // a row of −∞ only must not become ∞ − ∞
    double total;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, vocabulary),
        [&](std::int64_t v, double& part) { part += static_cast<double>(fast_exp(z(v) - shift)); }, total);
    if (!(total > 0)) return Kokkos::Experimental::quiet_NaN_v<C>;
    return z(token) - shift - static_cast<C>(Kokkos::log(total));
  }
};

}  // namespace kformer::Impl
