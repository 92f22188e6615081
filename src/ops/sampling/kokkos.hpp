// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/sampling.hpp"
#include "ops/sampling/kokkos_row.hpp"
#include "ops/sampling/philox.hpp"

/// \file
/// The portable kernels of sampling: one team per row. Nothing is sorted: what stays is found by bisection, of
/// the ordered bits of the logits for top-k and of the weights for top-p.

namespace kformer::Impl {

/// Whether a row is worked on in the workspace, eight bytes per token.
inline bool needs_weights(const Sampling& p) { return p.options.temperature > 0 || p.penalised(); }

inline std::size_t sampling_kokkos_workspace(const Sampling& p) {
  return needs_weights(p) ? static_cast<std::size_t>(p.logits.size()) * sizeof(std::uint64_t) : 0;
}

/// What stays after a filter: values above the edge, and those at it up to an id.
struct SamplingEdge {
  std::uint64_t value = 1;
  std::int64_t last = 0;

  KOKKOS_FUNCTION bool keeps(std::uint64_t x, std::int64_t v) const {
    return x > value || (x == value && v <= last);
  }
};

/// The `k` largest of `bits`; all where there are fewer above 0.
template <class C, class Row>
KOKKOS_FUNCTION SamplingEdge top_k_edge(const Row& row, const std::uint64_t* bits, std::int64_t top_k) {
  const auto k = static_cast<std::uint64_t>(top_k);
  if (top_k == 0 || row.sum([&](std::int64_t v) { return bits[v] > 0; }) <= k) return {1, row.vocabulary};
  const std::uint64_t edge = row.largest_with(sizeof(C) * 8, [&](std::uint64_t t) {
    return row.sum([&](std::int64_t v) { return bits[v] >= t; }) >= k;
  });
  const std::uint64_t above = row.sum([&](std::int64_t v) { return bits[v] > edge; });
  return {edge, row.find_prefix(k - above - 1, [&](std::int64_t v) { return bits[v] == edge; })};
}

/// The largest `weights` that together have the share `top_p` of all.
template <class Row>
KOKKOS_FUNCTION SamplingEdge top_p_edge(const Row& row, const std::uint64_t* weights, double top_p) {
  if (top_p >= 1) return {1, row.vocabulary};
  const std::uint64_t all = row.sum([&](std::int64_t v) { return weights[v]; });
  const auto share = static_cast<std::uint64_t>(Kokkos::ceil(top_p * static_cast<double>(all)));
  const std::uint64_t wanted = Kokkos::min(all, Kokkos::max(share, std::uint64_t{1}));
  const std::uint64_t edge = row.largest_with(weight_bits + 1, [&](std::uint64_t t) {
    return row.sum([&](std::int64_t v) { return weights[v] >= t ? weights[v] : 0; }) >= wanted;
  });
  const std::uint64_t above = row.sum([&](std::int64_t v) { return weights[v] > edge ? weights[v] : 0; });
  const std::uint64_t ties = ceil_div(wanted - above, edge);
  return {edge, row.find_prefix(ties - 1, [&](std::int64_t v) { return weights[v] == edge; })};
}

/// Options in the form that the kernel needs.
struct SamplingRule {
  double temperature, top_p;
  std::int64_t top_k, first_stream;
  std::uint64_t least_weight, seed;

  explicit SamplingRule(const SamplingOptions& o)
      : temperature(o.temperature),
        top_p(o.top_p),
        top_k(o.top_k),
        first_stream(o.first_stream),
        least_weight(static_cast<std::uint64_t>(Kokkos::ceil(o.min_p * (std::uint64_t{1} << weight_bits)))),
        seed(o.seed) {}
};

/// Draws a token from a row whose ordered bits, the largest of them `best`, are replaced by weights.
template <class C, class Row>
KOKKOS_FUNCTION std::int64_t draw_token(const Row& row, std::uint64_t* bits, std::uint64_t best,
                                        const SamplingRule& rule, std::uint64_t random) {
  const SamplingEdge chosen = top_k_edge<C>(row, bits, rule.top_k);
  const C greatest = logit_of_bits<C>(best);
  row.team.team_barrier();
  Kokkos::parallel_for(Kokkos::TeamVectorRange(row.team, row.vocabulary), [&](std::int64_t v) {
    const double z = static_cast<double>(logit_of_bits<C>(bits[v]) - greatest) / rule.temperature;
    const C share = fast_exp(static_cast<C>(z));
    constexpr C one = static_cast<C>(std::uint64_t{1} << weight_bits);
    bits[v] = chosen.keeps(bits[v], v) ? static_cast<std::uint64_t>(share * one) : 0;
  });
  row.team.team_barrier();
  const SamplingEdge nucleus = top_p_edge(row, bits, rule.top_p);
  const auto weight = [&](std::int64_t v) {
    return bits[v] >= rule.least_weight && nucleus.keeps(bits[v], v) ? bits[v] : std::uint64_t{0};
  };
  return row.find_prefix(scaled_below(row.sum(weight), random), weight);
}

template <class T, class Exec>
void sample_kokkos(const Exec& exec, const Sampling& p, const Workspace& workspace) {
  using C = compute_t<T>;
  const auto logits = p.logits.as<const T, 2>();
  const bool penalised = p.penalised(), weighed = needs_weights(p);
  const auto history = penalised ? p.history.as<const std::int32_t, 2>() : Strided<const std::int32_t, 2>{};
  const auto lengths =
      penalised ? p.history_lengths.as<const std::int32_t, 1>() : Strided<const std::int32_t, 1>{};
  const auto positions = p.positions.as<const std::int32_t, 1>();
  const auto tokens = p.tokens.as<std::int32_t, 1>();
  const auto log_probabilities = p.log_probabilities.as<C, 1>();
  const std::int64_t vocabulary = p.logits.extent[1];
  const C penalty = static_cast<C>(p.options.repetition_penalty);
  const SamplingRule rule(p.options);
  auto* const all_bits = static_cast<std::uint64_t*>(workspace.data);
  Kokkos::parallel_for(
      "kformer::sample[kokkos]", team_policy(exec, p.logits.extent[0], vocabulary),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t r = team.league_rank();
        const SamplingRow<TeamMember<Exec>> row{team, vocabulary};
        const T* x = logits.data + r * logits.stride[0];
        const auto z = [&](std::int64_t v) { return counted_logit(static_cast<C>(x[v])); };
        std::int64_t token = -1;
        if (weighed) {
          std::uint64_t* bits = all_bits + r * vocabulary;
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, vocabulary),
                               [&](std::int64_t v) { bits[v] = ordered_bits(z(v)); });
          team.team_barrier();
          if (penalised) {
            const std::int64_t length =
                Kokkos::max(std::int64_t{0}, Kokkos::min<std::int64_t>(lengths(r), history.extent[1]));
            Kokkos::parallel_for(Kokkos::TeamVectorRange(team, length), [&](std::int64_t i) {
              // A token that occurs twice is written twice, with the same value.
              const std::int64_t v = history(r, i);
              if (v >= 0 && v < vocabulary)
                Kokkos::atomic_store(&bits[v], ordered_bits(penalised_logit(z(v), penalty)));
            });
            team.team_barrier();
          }
          const std::uint64_t best = row.largest([&](std::int64_t v) { return bits[v]; });
          if (best > 0 && rule.temperature > 0)
            token = draw_token<C>(row, bits, best, rule,
                                  random_number(rule.seed, rule.first_stream + r, positions(r)));
          else if (best > 0)
            token = row.first([&](std::int64_t v) { return bits[v] == best; });
        } else {
          const std::uint64_t best = row.largest([&](std::int64_t v) { return ordered_bits(z(v)); });
          if (best > 0) token = row.first([&](std::int64_t v) { return ordered_bits(z(v)) == best; });
        }
        const C log_probability =
            token < 0 ? Kokkos::Experimental::quiet_NaN_v<C> : row.template log_probability<C>(token, z);
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          tokens(r) = static_cast<std::int32_t>(token);
          log_probabilities(r) = log_probability;
        });
      });
}

template <class T, class Exec>
void token_log_probabilities_kokkos(const Exec& exec, const TokenLogProbabilities& p) {
  using C = compute_t<T>;
  const auto logits = p.logits.as<const T, 2>();
  const auto ids = p.ids.as<const std::int32_t, 1>();
  const auto log_probabilities = p.log_probabilities.as<C, 1>();
  const std::int64_t vocabulary = p.logits.extent[1];
  Kokkos::parallel_for(
      "kformer::token_log_probabilities[kokkos]", team_policy(exec, p.logits.extent[0], vocabulary),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t r = team.league_rank(), id = ids(r);
        const SamplingRow<TeamMember<Exec>> row{team, vocabulary};
        const T* x = logits.data + r * logits.stride[0];
        const auto z = [&](std::int64_t v) { return counted_logit(static_cast<C>(x[v])); };
        const bool valid = id >= 0 && id < vocabulary;
        const C log_probability =
            valid ? row.template log_probability<C>(id, z) : Kokkos::Experimental::quiet_NaN_v<C>;
        Kokkos::single(Kokkos::PerTeam(team), [&] { log_probabilities(r) = log_probability; });
      });
}

}  // namespace kformer::Impl
