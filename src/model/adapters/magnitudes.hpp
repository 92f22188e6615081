// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>

#include "kformer/core/scalar.hpp"
#include "kformer/core/views.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "kformer/parallel/collectives.hpp"
#include "ops/quantized/blocks.hpp"

/// \file
/// The rows of a weight with its adapter as directions with magnitudes (DoRA: Liu et al., arXiv:2402.09353).

namespace kformer::Impl {

/// Columns that a thread sums at once.
template <class Exec>
inline constexpr std::size_t magnitude_columns = is_host_space<Exec> ? 32 : 1;

/// The weights of a quantised matrix, one by one.
template <QuantizedFormat format, class C>
struct QuantizedElements {
  MatrixBlocks<format> blocks;

  KOKKOS_FUNCTION C operator()(std::size_t row, std::size_t column) const {
    return blocks.template weight<C>(static_cast<std::int64_t>(row), static_cast<std::int64_t>(column));
  }
};

/// norm(o) = ‖W_o + s B_o A‖, for (out, in), (out, rank) and (rank, in). W is a View or `QuantizedElements`. The sum
/// W + s B A exists in registers alone.
template <class Exec, class W, class B, class A, class V>
void row_norms(const char* label, const Exec& exec, const W& w, const B& b, const A& a, double factor,
               const V& norm) {
  using C = typename V::non_const_value_type;
  constexpr std::size_t width = magnitude_columns<Exec>;
  const std::size_t out = b.extent(0), in = a.extent(1), rank = b.extent(1), tiles = (in + width - 1) / width;
  const C scale = static_cast<C>(factor);
  Kokkos::parallel_for(
      label, team_policy(exec, static_cast<std::int64_t>(out), static_cast<std::int64_t>(tiles)),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const auto o = static_cast<std::size_t>(team.league_rank());
        C square = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, tiles),
            [&](std::size_t tile, C& sum) {
              const std::size_t first = tile * width, count = in - first < width ? in - first : width;
              C row[width] = {};
              for (std::size_t k = 0; k < rank; ++k) {
                const C factor_of_row = scale * static_cast<C>(b(o, k));
                for (std::size_t i = 0; i < count; ++i)
                  row[i] += factor_of_row * static_cast<C>(a(k, first + i));
              }
              for (std::size_t i = 0; i < count; ++i) {
                const C value = static_cast<C>(w(o, first + i)) + row[i];
                sum += value * value;
              }
            },
            square);
        Kokkos::single(Kokkos::PerTeam(team), [&] { norm(o) = Kokkos::sqrt(square); });
      });
}

/// The same of a quantised matrix.
template <class Exec, class B, class A, class V>
void quantized_row_norms(const char* label, const Exec& exec, const QuantizedMatrix& w, const B& b, const A& a,
                         double factor, const V& norm) {
  using C = typename V::non_const_value_type;
  with_format(w.format, [&](auto format) {
    row_norms(label, exec, QuantizedElements<format(), C>{MatrixBlocks<format()>(w)}, b, a, factor, norm);
  });
}

/// The norms of rows of which ranks have some columns each, from those of these.
template <class Exec, class V>
void join_norms(const Exec& exec, Collectives<Exec>& ranks, const V& norm) {
  const char* label = "kformer::DecoderLayer::norms_of_rows";
  const Kokkos::RangePolicy<Exec> rows(exec, 0, norm.extent(0));
  Kokkos::parallel_for(label, rows, KOKKOS_LAMBDA(std::size_t o) { norm(o) *= norm(o); });
  ranks.all_reduce(exec, norm, "norms of rows");
  Kokkos::parallel_for(label, rows, KOKKOS_LAMBDA(std::size_t o) { norm(o) = Kokkos::sqrt(norm(o)); });
}

/// m = norm, rounded.
template <class Exec, class V, class M>
void set_magnitudes(const char* label, const Exec& exec, const V& norm, const M& magnitude) {
  using T = typename M::non_const_value_type;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec>(exec, 0, norm.extent(0)),
      KOKKOS_LAMBDA(std::size_t o) { magnitude(o) = T(norm(o)); });
}

/// gain = m/norm; 0 for a row of zeros, which has no direction.
template <class Exec, class M, class V>
void row_gains(const char* label, const Exec& exec, const M& magnitude, const V& norm, const V& gain) {
  using C = typename V::non_const_value_type;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec>(exec, 0, norm.extent(0)),
      KOKKOS_LAMBDA(std::size_t o) { gain(o) = norm(o) > 0 ? static_cast<C>(magnitude(o)) / norm(o) : C(0); });
}

/// Calls `f(row, column)` for all elements of `y`, a team for each row.
template <class Exec, class Y, class F>
void for_elements(const char* label, const Exec& exec, const Y& y, const F& f) {
  const std::size_t columns = y.extent(1);
  const auto policy =
      team_policy(exec, static_cast<std::int64_t>(y.extent(0)), static_cast<std::int64_t>(columns));
  Kokkos::parallel_for(
      label, policy, KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const auto row = static_cast<std::size_t>(team.league_rank());
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, columns),
                             [&](std::size_t column) { f(row, column); });
      });
}

/// gain − 1.
template <class V>
struct GainLessOne {
  V gain;
  KOKKOS_INLINE_FUNCTION auto operator()(std::size_t c) const { return gain(c) - 1; }
};

/// y = factor ⊙ x, by columns; may be in place.
template <class Exec, class X, class F, class Y>
void scale_columns(const Exec& exec, const X& x, const F& factor, const Y& y) {
  using T = typename Y::non_const_value_type;
  using C = compute_t<T>;
  for_elements(
      "kformer::DecoderLayer::magnitudes", exec, y,
      KOKKOS_LAMBDA(std::size_t r, std::size_t c) { y(r, c) = T(factor(c) * static_cast<C>(x(r, c))); });
}

/// y = base + factor ⊙ x: a summand for every element, a factor for every column.
template <class Exec, class R, class X, class F, class Y>
void add_scaled_columns(const Exec& exec, const R& base, const X& x, const F& factor, const Y& y) {
  using T = typename Y::non_const_value_type;
  using C = compute_t<T>;
  for_elements(
      "kformer::DecoderLayer::magnitudes", exec, y, KOKKOS_LAMBDA(std::size_t r, std::size_t c) {
        y(r, c) = T(static_cast<C>(base(r, c)) + factor(c) * static_cast<C>(x(r, c)));
      });
}

/// The same with a summand for every column: `y = bias + factor ⊙ y`.
template <class Exec, class V, class F, class Y>
void scale_and_add_bias(const Exec& exec, const V& bias, const F& factor, const Y& y) {
  using T = typename Y::non_const_value_type;
  using C = compute_t<T>;
  for_elements(
      "kformer::DecoderLayer::magnitudes", exec, y, KOKKOS_LAMBDA(std::size_t r, std::size_t c) {
        y(r, c) = T(static_cast<C>(bias(c)) + factor(c) * static_cast<C>(y(r, c)));
      });
}

/// Which rows of a step have an adapter with magnitudes.
template <class Of, class Chosen>
struct ScaledRows {
  Of of;          ///< (adapters): the row of gains of each, or −1
  Chosen chosen;  ///< (rows): the adapter of each; any number

  /// The row of gains, or −1.
  KOKKOS_INLINE_FUNCTION std::int32_t operator()(std::size_t row) const {
    const std::int32_t own = chosen(row);
    return own >= 0 && static_cast<std::size_t>(own) < of.extent(0) ? of(own) : -1;
  }
};

/// What is added to no row.
struct NoAddend {
  KOKKOS_INLINE_FUNCTION float operator()(std::size_t, std::size_t) const { return 0; }
};

/// A bias as an addend of rows.
template <class V>
struct BiasAddend {
  V bias;
  KOKKOS_INLINE_FUNCTION auto operator()(std::size_t, std::size_t c) const { return bias(c); }
};

/// spare = y and y = 0 in the rows that are scaled: their product must stay apart until it is scaled.
template <class Exec, class Rows, class Y>
void set_aside_scaled(const Exec& exec, const Rows& rows, const Y& y, const Y& spare) {
  using T = typename Y::non_const_value_type;
  using C = compute_t<T>;
  for_elements(
      "kformer::LlamaDecoder::magnitudes", exec, y, KOKKOS_LAMBDA(std::size_t r, std::size_t c) {
        if (rows(r) < 0) return;
        spare(r, c) = y(r, c);
        y(r, c) = T(C(0));
      });
}

/// y = bias, or 0 in the rows that are scaled.
template <class Exec, class Rows, class V, class Y>
void bias_unless_scaled(const Exec& exec, const Rows& rows, const V& bias, const Y& y) {
  using T = typename Y::non_const_value_type;
  using C = compute_t<T>;
  for_elements(
      "kformer::LlamaDecoder::magnitudes", exec, y,
      KOKKOS_LAMBDA(std::size_t r, std::size_t c) { y(r, c) = rows(r) < 0 ? T(bias(c)) : T(C(0)); });
}

/// y = addend + gain ⊙ y in the rows that are scaled, each with its own gains, which lie one behind the other.
template <class Exec, class Rows, class G, class A, class Y>
void scale_chosen_rows(const Exec& exec, const Rows& rows, const G& gain, const A& addend, const Y& y) {
  using T = typename Y::non_const_value_type;
  using C = compute_t<T>;
  const std::size_t columns = y.extent(1);
  for_elements(
      "kformer::LlamaDecoder::magnitudes", exec, y, KOKKOS_LAMBDA(std::size_t r, std::size_t c) {
        const std::int32_t own = rows(r);
        if (own < 0) return;
        const C factor = gain(static_cast<std::size_t>(own) * columns + c);
        y(r, c) = T(static_cast<C>(addend(r, c)) + factor * static_cast<C>(y(r, c)));
      });
}

/// dm(c) += Σ_r dy(r, c) y(r, c) / norm(c), in the order of rows, with y before it is scaled.
template <class Exec, class DY, class Y, class V, class DM>
void magnitude_gradient(const Exec& exec, const DY& dy, const Y& y, const V& norm, const DM& dm) {
  using C = typename V::non_const_value_type;
  constexpr std::size_t width = magnitude_columns<Exec>;
  const std::size_t rows = y.extent(0), columns = y.extent(1);
  Kokkos::parallel_for(
      "kformer::DecoderLayer::magnitudes_backward",
      Kokkos::RangePolicy<Exec>(exec, 0, (columns + width - 1) / width), KOKKOS_LAMBDA(std::size_t tile) {
        const std::size_t first = tile * width, count = columns - first < width ? columns - first : width;
        C sum[width] = {};
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t i = 0; i < count; ++i)
            sum[i] += static_cast<C>(dy(r, first + i)) * static_cast<C>(y(r, first + i));
        for (std::size_t i = 0; i < count; ++i)
          if (norm(first + i) > 0) dm(first + i) += sum[i] / norm(first + i);
      });
}

}  // namespace kformer::Impl
