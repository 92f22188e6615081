// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include "kformer/core/scalar.hpp"
#include "kformer/model/impl/context_slice.hpp"
#include "model/tools/head_views.hpp"

/// \file
/// Parts of the operands of attention, and sums of them.

namespace kformer::Impl {

/// Where documents begin among some queries and among some keys of the sequence whose first token is number `sequence`
/// of all. A document of which none is there is empty: so every document counts, though most lie elsewhere.
template <class Exec, class Starts, class To>
void place_documents(const Exec& exec, const Starts& starts, std::int64_t sequence, const TokenRuns& queries,
                     const TokenRuns& keys, const To& query_starts, const To& key_starts) {
  Kokkos::parallel_for(
      "kformer::DecoderLayer::place_documents", Kokkos::RangePolicy<Exec>(exec, 0, starts.extent(0)),
      KOKKOS_LAMBDA(std::size_t i) {
        const std::int64_t token = starts(i) - sequence;
        query_starts(i) = static_cast<std::int32_t>(queries.before(token));
        key_starts(i) = static_cast<std::int32_t>(keys.before(token));
      });
}

/// Some sequences of q, k, v, …, or of lse.
template <class V>
V sequences_of(const V& all, std::pair<std::size_t, std::size_t> some) {
  if constexpr (V::rank() == 4)
    return Kokkos::subview(all, some, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL);
  else
    return Kokkos::subview(all, some, Kokkos::ALL, Kokkos::ALL);
}

/// `f(b, s, h, d)` of all elements of x, whose last index is the fastest.
template <class Exec, class X, class F>
void for_heads(const char* label, const Exec& exec, const X& x, const F& f) {
  Kokkos::parallel_for(
      label,
      Kokkos::MDRangePolicy<Exec, Kokkos::Rank<4, Kokkos::Iterate::Right, Kokkos::Iterate::Right>>(
          exec, {0, 0, 0, 0}, {x.extent(0), x.extent(1), x.extent(2), x.extent(3)}),
      f);
}

/// to = x
template <class Exec, class To, class X>
void convert_heads(const Exec& exec, const To& to, const X& x) {
  using U = typename To::value_type;
  for_heads(
      "kformer::DecoderLayer::convert_heads", exec, x,
      KOKKOS_LAMBDA(std::size_t b, std::size_t s, std::size_t h, std::size_t d) {
        to(b, s, h, d) = static_cast<U>(static_cast<compute_t<U>>(x(b, s, h, d)));
      });
}

/// sum += x
template <class Exec, class Sum, class X>
void add_heads(const Exec& exec, const Sum& sum, const X& x) {
  using U = typename Sum::value_type;
  using C = compute_t<U>;
  for_heads(
      "kformer::DecoderLayer::add_heads", exec, x,
      KOKKOS_LAMBDA(std::size_t b, std::size_t s, std::size_t h, std::size_t d) {
        sum(b, s, h, d) = static_cast<U>(static_cast<C>(sum(b, s, h, d)) + static_cast<C>(x(b, s, h, d)));
      });
}

/// lse = log(exp(lse) + exp(part)), and part = its share exp(part − lse) in that.
template <class Exec, class Lse>
void merge_lse(const Exec& exec, const Lse& lse, const Lse& part) {
  using C = typename Lse::value_type;
  Kokkos::parallel_for(
      "kformer::DecoderLayer::merge_lse",
      Kokkos::MDRangePolicy<Exec, Kokkos::Rank<3>>(exec, {0, 0, 0},
                                                   {lse.extent(0), lse.extent(1), lse.extent(2)}),
      KOKKOS_LAMBDA(std::size_t b, std::size_t h, std::size_t s) {
        const C old = lse(b, h, s), other = part(b, h, s), high = Kokkos::max(old, other);
        C share = 0;
        // A part in which the query sees nothing has no share.
        if (other > -Kokkos::Experimental::infinity_v<C>) {
          const C sum = high + Kokkos::log(Kokkos::exp(old - high) + Kokkos::exp(other - high));
          share = Kokkos::exp(other - sum);
          lse(b, h, s) = sum;
        }
        part(b, h, s) = share;
      });
}

/// sum += share · (x − sum), which is the weighted mean of both.
template <class Exec, class Sum, class X, class Share>
void merge_heads(const Exec& exec, const Sum& sum, const X& x, const Share& share) {
  using C = typename Sum::value_type;
  for_heads(
      "kformer::DecoderLayer::merge_heads", exec, x,
      KOKKOS_LAMBDA(std::size_t b, std::size_t s, std::size_t h, std::size_t d) {
        const C old = sum(b, s, h, d);
        sum(b, s, h, d) = old + share(b, h, s) * (static_cast<C>(x(b, s, h, d)) - old);
      });
}

}  // namespace kformer::Impl
