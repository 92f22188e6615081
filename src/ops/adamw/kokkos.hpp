// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/batches.hpp"
#include "ops/adamw/dynamic_map.hpp"

/// \file
/// The portable kernels of AdamW: one team per piece of a parameter.

namespace kformer::Impl {

/// The step of one element.
template <class C>
struct AdamWRule {
  C rate, first, second, first_correction, second_correction, eps, factor;

  KOKKOS_INLINE_FUNCTION AdamWRule(const host::AdamWNumbers& n, double gradient_factor)
      : rate(static_cast<C>(n.learning_rate)),
        first(static_cast<C>(n.first)),
        second(static_cast<C>(n.second)),
        first_correction(static_cast<C>(n.first_correction)),
        second_correction(static_cast<C>(n.second_correction)),
        eps(static_cast<C>(n.eps)),
        factor(static_cast<C>(gradient_factor)) {}

  /// β·m + (1 − β)·g as m + (1 − β)·(g − m): one rounding that counts, and v stays positive.
  KOKKOS_INLINE_FUNCTION void operator()(C gradient, C decay, C& m, C& v, C& w) const {
    const C g = gradient * factor;
    m += first * (g - m);
    v += second * (g * g - v);
    w -= rate * (m * first_correction / (Kokkos::sqrt(v) * second_correction + eps) + decay * w);
  }
};

/// The weight that the step is made on, and the weight that is its rounding. Without a master weight they are
/// one, and `exact` is null if it has 16 bits.
template <class T>
struct AdamWWeight {
  using C = compute_t<T>;
  C* exact;
  T* rounded;

  KOKKOS_INLINE_FUNCTION explicit AdamWWeight(const host::AdamWItem& item)
      : exact(static_cast<C*>(sizeof(T) == 2 ? item.master : item.weight)),
        rounded(static_cast<T*>(item.weight)) {}
  KOKKOS_INLINE_FUNCTION C load(std::int64_t i) const { return exact ? exact[i] : static_cast<C>(rounded[i]); }
  KOKKOS_INLINE_FUNCTION void store(std::int64_t i, C w) const {
    if (exact) exact[i] = w;
    if constexpr (sizeof(T) == 2) rounded[i] = T(w);
  }
};

template <class T, class Exec>
void adamw_kokkos(const Exec& exec, const AdamWBatch& batch, const host::AdamWNumbers& numbers,
                  const GradientScaling& scaling) {
  using C = compute_t<T>;
  Kokkos::parallel_for(
      "kformer::adamw[kokkos]", team_policy(exec, batch.pieces, adamw_piece),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        if (scaling.template skips<C>()) return;
        const AdamWRange range = range_of(batch, team.league_rank());
        const host::AdamWItem& item = batch.items[range.item];
        const AdamWRule<C> rule(numbers, scaling.template factor<C>());
        const AdamWWeight<T> weight(item);
        const auto* gradient = static_cast<const C*>(item.gradient);
        auto *m = static_cast<C*>(item.m), *v = static_cast<C*>(item.v);
        const C decay = static_cast<C>(item.weight_decay);
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, range.begin, range.end), [&](std::int64_t i) {
          C mean = m[i], square = v[i], w = weight.load(i);
          rule(gradient[i], decay, mean, square, w);
          m[i] = mean;
          v[i] = square;
          weight.store(i, w);
        });
      });
}

/// What a team needs for 8-bit states: the maps, and the new states of a block until their scales are known.
struct AdamWScratch {
  DynamicMap m_map, v_map;
  float m[adamw_block], v[adamw_block];
};

template <class Team>
KOKKOS_INLINE_FUNCTION void make_maps(const Team& team, AdamWScratch& scratch) {
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, 256), [&](int code) {
    scratch.m_map.value[code] = dynamic_value<MapSign::with>(code);
    scratch.m_map.border[code] = dynamic_border<MapSign::with>(code);
    scratch.v_map.value[code] = dynamic_value<MapSign::without>(code);
    scratch.v_map.border[code] = dynamic_border<MapSign::without>(code);
  });
  team.team_barrier();
}

/// The scale of `count` numbers, and their codes. The bits of magnitudes are ordered like the magnitudes, and
/// NaN is above all of them.
template <class Team>
KOKKOS_INLINE_FUNCTION void encode(const Team& team, const DynamicMap& map, const float* numbers, int count,
                                   std::uint8_t* codes, float* scale) {
  std::uint32_t bits = 0;
  Kokkos::parallel_reduce(
      Kokkos::TeamVectorRange(team, count),
      [&](int i, std::uint32_t& largest) {
        largest = Kokkos::max(largest, Kokkos::bit_cast<std::uint32_t>(Kokkos::abs(numbers[i])));
      },
      Kokkos::Max<std::uint32_t>(bits));
  const auto largest = Kokkos::bit_cast<float>(bits);
  Kokkos::single(Kokkos::PerTeam(team), [&] { *scale = largest; });
  const float divisor = bits == 0 ? 1.0f : largest;
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), [&](int i) {
    codes[i] = static_cast<std::uint8_t>(dynamic_code(map, numbers[i] / divisor));
  });
}

template <class T, class Exec>
void adamw_coded_kokkos(const Exec& exec, const AdamWBatch& batch, const host::AdamWNumbers& numbers,
                        const GradientScaling& scaling) {
  auto policy = team_policy(exec, batch.pieces, adamw_block);
  policy.set_scratch_size(0, Kokkos::PerTeam(sizeof(AdamWScratch) + alignof(AdamWScratch)));
  Kokkos::parallel_for(
      "kformer::adamw_coded[kokkos]", policy, KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        if (scaling.template skips<float>()) return;
        auto& scratch = *static_cast<AdamWScratch*>(
            team.team_scratch(0).get_shmem_aligned(sizeof(AdamWScratch), alignof(AdamWScratch)));
        make_maps(team, scratch);
        const AdamWRange range = range_of(batch, team.league_rank());
        const host::AdamWItem& item = batch.items[range.item];
        const AdamWRule<float> rule(numbers, scaling.template factor<float>());
        const AdamWWeight<T> weight(item);
        const auto decay = static_cast<float>(item.weight_decay);
        for (std::int64_t begin = range.begin; begin < range.end; begin += adamw_block) {
          const std::int64_t block = begin / adamw_block;
          const std::int64_t left = range.end - begin;  // Kokkos::min would take the address of a host constant
          const int count = static_cast<int>(left < adamw_block ? left : adamw_block);
          const auto* gradient = static_cast<const float*>(item.gradient) + begin;
          auto *m = static_cast<std::uint8_t*>(item.m) + begin, *v = static_cast<std::uint8_t*>(item.v) + begin;
          const float m_scale = item.m_scale[block], v_scale = item.v_scale[block];
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), [&](int i) {
            float mean = scratch.m_map.value[m[i]] * m_scale, square = scratch.v_map.value[v[i]] * v_scale;
            float w = weight.load(begin + i);
            rule(gradient[i], decay, mean, square, w);
            scratch.m[i] = mean;
            scratch.v[i] = square;
            weight.store(begin + i, w);
          });
          team.team_barrier();
          encode(team, scratch.m_map, scratch.m, count, m, item.m_scale + block);
          encode(team, scratch.v_map, scratch.v, count, v, item.v_scale + block);
          team.team_barrier();
        }
      });
}

inline std::size_t gradient_norm_workspace(const GradientNorm& p) {
  return static_cast<std::size_t>(adamw_pieces(p.parameters)) * sizeof(double);
}

/// The last stage: partial sums, one per piece, are added by one team.
template <class C, class Exec>
void gradient_norm_finish(const char* label, const Exec& exec, const GradientNorm& p, const double* partial,
                          std::int64_t pieces) {
  auto* norm = static_cast<C*>(p.norm.data);
  Kokkos::parallel_for(
      label, team_policy(exec, 1, pieces), KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        double sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, pieces),
            [&](std::int64_t piece, double& total) { total += partial[piece]; }, sum);
        Kokkos::single(Kokkos::PerTeam(team), [&] { *norm = static_cast<C>(Kokkos::sqrt(sum)); });
      });
}

/// The first stage: the sum of squares of each piece.
template <class C, class Exec>
void gradient_norm_pieces(const Exec& exec, const AdamWBatch& batch, double* partial) {
  Kokkos::parallel_for(
      "kformer::gradient_norm[kokkos]", team_policy(exec, batch.pieces, adamw_piece),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const AdamWRange range = range_of(batch, team.league_rank());
        const auto* gradient = static_cast<const C*>(batch.items[range.item].gradient);
        double sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, range.begin, range.end),
            [&](std::int64_t i, double& total) {
              const auto g = static_cast<double>(gradient[i]);
              total += g * g;
            },
            sum);
        Kokkos::single(Kokkos::PerTeam(team), [&] { partial[team.league_rank()] = sum; });
      });
}

template <class C, class Exec>
void gradient_norm_kokkos(const Exec& exec, const GradientNorm& p, const Workspace& workspace) {
  auto* partial = static_cast<double*>(workspace.data);
  std::int64_t done = 0;
  for_each_batch(
      p.parameters, [](const AdamWParameter&) { return true; },
      [&](const AdamWBatch& batch) {
        gradient_norm_pieces<C>(exec, batch, partial + done);
        done += batch.pieces;
      });
  gradient_norm_finish<C>("kformer::gradient_norm_sum[kokkos]", exec, p, partial, done);
}

}  // namespace kformer::Impl
