// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/soft_cap.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "ops/kv_cache/rows.hpp"

/// \file
/// The portable kernels of caches that drop tokens.

namespace kformer::Impl {

/// `Σ a_d·b_d`. On hosts as many sums side by side as vectors have lanes.
template <class C, class T>
KOKKOS_INLINE_FUNCTION C dot_of(const OneThread&, const T* a, const T* b, std::int64_t count) {
  constexpr int lanes = 16;
  C sum[lanes] = {};
  std::int64_t d = 0;
  for (; d + lanes <= count; d += lanes)
    for (int i = 0; i < lanes; ++i) sum[i] += static_cast<C>(a[d + i]) * static_cast<C>(b[d + i]);
  for (; d < count; ++d) sum[d % lanes] += static_cast<C>(a[d]) * static_cast<C>(b[d]);
  C all = 0;
  for (int i = 0; i < lanes; ++i) all += sum[i];
  return all;
}
template <class C, class Member, class T>
KOKKOS_INLINE_FUNCTION C dot_of(const Member& team, const T* a, const T* b, std::int64_t count) {
  C sum = 0;
  Kokkos::parallel_reduce(
      Kokkos::TeamVectorRange(team, count),
      [&](std::int64_t d, C& here) { here += static_cast<C>(a[d]) * static_cast<C>(b[d]); }, sum);
  return sum;
}

/// An item is a key of a head; its sum runs over the query heads of the group, and over the queries, in order.
template <class T>
struct KvMassOfKeys {
  using C = compute_t<T>;
  Strided<const T, 3> q, k;
  Strided<const C, 2> lse;
  Strided<const std::int32_t, 2> positions;
  Strided<C, 2> mass;
  std::int64_t window;
  C scale;
  SoftCap<C> softcap;

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t kv_heads = k.extent[1], head = item % kv_heads, key = item / kv_heads;
    const std::int64_t group = q.extent[1] / kv_heads, old = k.extent[0] - q.extent[0];
    const T* row = k.data + key * k.stride[0] + head * k.stride[1];
    C sum = key < old ? mass(head, key) : C(0);
    for (std::int64_t h = head * group; h < (head + 1) * group; ++h)
      for (std::int64_t i = key < old ? 0 : key - old; i < q.extent[0]; ++i) {
        const C log_sum = lse(h, i);
        if (!sees(head, old + i, key) || log_sum == -Kokkos::Experimental::infinity_v<C>) continue;
        const T* query = q.data + i * q.stride[0] + h * q.stride[1];
        const C score = softcap.apply(dot_of<C>(team, query, row, k.extent[2]) * scale);
        sum += Kokkos::exp(score - log_sum);
      }
    // Every thread of a team has the same sum.
    if constexpr (!std::is_same_v<Team, OneThread>) team.team_barrier();
    mass(head, key) = sum;
  }

 private:
  KOKKOS_FUNCTION bool sees(std::int64_t head, std::int64_t at, std::int64_t key) const {
    return window == 0 || static_cast<std::int64_t>(positions(head, at)) - positions(head, key) < window;
  }
};

template <class Exec>
void kv_attention_mass_kokkos(const Exec& exec, const KvAttentionMass& p) {
  dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) {
    using C = compute_t<T>;
    for_each_item("kformer::kv_attention_mass[kokkos]", exec, p.mass.size(), p.k.extent[2],
                  KvMassOfKeys<T>{p.q.template as<const T, 3>(), p.k.template as<const T, 3>(),
                                  p.lse.template as<const C, 2>(),
                                  p.positions.template as<const std::int32_t, 2>(), p.mass.template as<C, 2>(),
                                  p.options.window, static_cast<C>(attention_scale(p.options, p.q.extent[2])),
                                  SoftCap<C>{static_cast<C>(p.options.softcap)}});
  });
}

/// The integer whose order is that of numbers that are not negative. NaN comes last.
template <class C>
struct OrderedBits;
template <>
struct OrderedBits<float> {
  using type = std::uint32_t;
};
template <>
struct OrderedBits<double> {
  using type = std::uint64_t;
};

/// An item is a head of an array. Bit by bit from the highest: the largest number that enough masses reach.
template <class C>
struct KvLargestMasses {
  using Bits = typename OrderedBits<C>::type;
  Strided<const C, 3> mass;
  Strided<std::int32_t, 3> kept;
  std::int64_t recent;

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t array = item / mass.extent[1], head = item % mass.extent[1];
    const C* masses = mass.data + array * mass.stride[0] + head * mass.stride[1];
    std::int32_t* to = kept.data + array * kept.stride[0] + head * kept.stride[1];
    const std::int64_t older = mass.extent[2] - recent, heavy = kept.extent[2] - recent;
    Bits limit = 0;
    for (Bits bit = Bits(1) << (8 * sizeof(Bits) - 1); bit != 0; bit >>= 1)
      if (count_from(team, masses, older, limit | bit) >= heavy) limit |= bit;
    const std::int64_t above = ~limit == 0 ? 0 : count_from(team, masses, older, limit + 1);
    write(team, masses, older, limit, heavy - above, to);
  }

 private:
  // −0 is 0, though its bits are above those of all numbers that are not negative.
  KOKKOS_FUNCTION static Bits bits_of(C x) { return Kokkos::bit_cast<Bits>(x == C(0) ? C(0) : x); }

  KOKKOS_FUNCTION static std::int64_t count_from(const OneThread&, const C* masses, std::int64_t count,
                                                 Bits limit) {
    std::int64_t reached = 0;
    for (std::int64_t s = 0; s < count; ++s) reached += bits_of(masses[s]) >= limit;
    return reached;
  }
  template <class Member>
  KOKKOS_FUNCTION static std::int64_t count_from(const Member& team, const C* masses, std::int64_t count,
                                                 Bits limit) {
    std::int64_t reached = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, count),
        [&](std::int64_t s, std::int64_t& here) { here += bits_of(masses[s]) >= limit; }, reached);
    return reached;
  }

  // Keeps the first `ties` of the masses that equal the limit.
  KOKKOS_FUNCTION void list(const C* masses, std::int64_t older, Bits limit, std::int64_t ties,
                            std::int32_t* to) const {
    for (std::int64_t s = 0; s < older; ++s) {
      const Bits bits = bits_of(masses[s]);
      if (bits > limit || (bits == limit && ties-- > 0)) *to++ = static_cast<std::int32_t>(s);
    }
    for (std::int64_t s = older; s < older + recent; ++s) *to++ = static_cast<std::int32_t>(s);
  }
  KOKKOS_FUNCTION void write(const OneThread&, const C* masses, std::int64_t older, Bits limit,
                             std::int64_t ties, std::int32_t* to) const {
    list(masses, older, limit, ties, to);
  }
  template <class Member>
  KOKKOS_FUNCTION void write(const Member& team, const C* masses, std::int64_t older, Bits limit,
                             std::int64_t ties, std::int32_t* to) const {
    Kokkos::single(Kokkos::PerTeam(team), [&] { list(masses, older, limit, ties, to); });
  }
};

template <class Exec>
void kv_heavy_hitters_kokkos(const Exec& exec, const KvHeavyHitters& p) {
  const auto run = [&]<class C>(std::type_identity<C>) {
    for_each_item(
        "kformer::kv_heavy_hitters[kokkos]", exec, p.mass.extent[0] * p.mass.extent[1], p.mass.extent[2],
        KvLargestMasses<C>{p.mass.template as<const C, 3>(), p.kept.template as<std::int32_t, 3>(), p.recent});
  };
  if (p.mass.dtype == DType::f64)
    run(std::type_identity<double>{});
  else
    run(std::type_identity<float>{});
}

/// An item is a query of a head.
template <class T>
struct KvMaskRows {
  Strided<const std::int32_t, 2> positions;
  Strided<T, 3> bias;
  KvMaskOptions options;

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    using C = compute_t<T>;
    const std::int64_t head = item / bias.extent[1], query = item % bias.extent[1], keys = bias.extent[2];
    const std::int32_t* at = positions.data + head * positions.extent[0] / bias.extent[0] * positions.stride[0];
    const std::int64_t here = at[keys - bias.extent[1] + query];
    T* row = bias.data + head * bias.stride[0] + query * bias.stride[1];
    const auto [window, sinks, model_window] = options;
    const T seen = T(C(0)), hidden = T(-Kokkos::Experimental::infinity_v<C>);
    for_each_of(team, keys, [=](std::int64_t j) {
      const std::int64_t position = at[j], distance = here - position;
      const bool kept = window == 0 || distance < window || position < sinks;
      row[j] = kept && (model_window == 0 || distance < model_window) ? seen : hidden;
    });
  }
};

template <class Exec>
void kv_mask_kokkos(const Exec& exec, const KvMask& p) {
  dispatch_dtype(p.bias.dtype, [&]<class T>(std::type_identity<T>) {
    for_each_item(
        "kformer::kv_mask[kokkos]", exec, p.bias.extent[0] * p.bias.extent[1], p.bias.extent[2],
        KvMaskRows<T>{p.positions.template as<const std::int32_t, 2>(), p.bias.template as<T, 3>(), p.options});
  });
}

}  // namespace kformer::Impl
