// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/launch.hpp"
#include "ops/quantized/rules.hpp"

/// \file
/// The portable linear map by quantised weights: one team per output and few rows of x, which share every
/// weight.

namespace kformer::Impl {

inline constexpr int quantized_rows = 4;

/// With more rows than these, tiles read x less often (kokkos_tiles.hpp).
inline constexpr std::int64_t most_rows_without_tiles = 16;

/// One sum per row.
template <class A>
struct RowSums {
  A of[quantized_rows] = {};

  KOKKOS_FUNCTION RowSums& operator+=(const RowSums& other) {
    for (int r = 0; r < quantized_rows; ++r) of[r] += other.of[r];
    return *this;
  }
};

}  // namespace kformer::Impl

template <class A>
struct Kokkos::reduction_identity<kformer::Impl::RowSums<A>> {
  /// Zeros.
  KOKKOS_FUNCTION static kformer::Impl::RowSums<A> sum() { return {}; }
};

namespace kformer::Impl {

/// 32 weights, of one block, against the same inputs of some rows.
template <QuantizedFormat format, class T>
struct QuantizedUnit {
  using C = compute_t<T>;
  BlockWeights<format, C> block;
  int first, count;  ///< in the block

  template <class A>
  KOKKOS_FUNCTION void add_full(const Strided<const T, 2>& x, std::int64_t row, int rows, std::int64_t column,
                                RowSums<A>& sums) const {
    C part[quantized_rows] = {};
    for (int i = 0; i < count; ++i) {
      const C weight = block(first + i);
      for (int r = 0; r < rows; ++r) part[r] += weight * static_cast<C>(x(row + r, column + i));
    }
    for (int r = 0; r < rows; ++r) sums.of[r] += part[r];
  }

  /// `scale` of the activations; without one for the row, that of the unit.
  template <class A>
  KOKKOS_FUNCTION void add_int8(const Strided<const T, 2>& x, std::int64_t row, int rows, std::int64_t column,
                                const ActivationScale<C>* of_row, RowSums<A>& sums) const {
    for (int r = 0; r < rows; ++r) {
      const T* from = &x(row + r, column);
      C greatest = 0;
      if (!of_row)
        for (int i = 0; i < count; ++i)
          greatest = Kokkos::fmax(greatest, ActivationScale<C>::magnitude(static_cast<C>(from[i])));
      const ActivationScale<C> scale = of_row ? of_row[r] : ActivationScale<C>(greatest);
      int products = 0, codes = 0;
      for (int i = 0; i < count; ++i) {
        const int code = scale.code(static_cast<C>(from[i]));
        products += code * QuantizedBlock<format>::code(block.block, first + i);
        codes += code;
      }
      sums.of[r] += static_cast<A>(scale.scale) * (static_cast<A>(block.scale) * static_cast<A>(products) +
                                                   static_cast<A>(block.offset) * static_cast<A>(codes));
    }
  }
};

template <QuantizedFormat format, Activations activations, class T, class Exec>
void quantized_linear_kokkos(const Exec& exec, const QuantizedLinearForward& p) {
  using C = compute_t<T>;
  using Block = QuantizedBlock<format>;
  // Sums of ternary weights times 8-bit activations are exact, and a double holds them.
  constexpr bool exact = Block::ternary && activations == Activations::int8;
  using A = std::conditional_t<exact, double, C>;
  constexpr int unit = 32;
  const auto x = p.x.as<const T, 2>();
  const auto y = p.y.as<T, 2>();
  const auto optional = [](const TensorRef& t) {
    return t.present() ? t.as<const T, 2>() : Strided<const T, 2>{};
  };
  const auto residual = optional(p.residual), xa = optional(p.adapter.left), b = optional(p.adapter.right);
  const std::int64_t rank = p.adapter.rank();
  const MatrixBlocks<format> blocks(p.weight);
  const std::int64_t in = p.weight.cols, out = p.weight.rows;
  const std::int64_t units = ceil_div<std::int64_t>(in, unit);
  const C alpha = static_cast<C>(p.options.scale);
  const std::int64_t all_rows = x.extent[0], row_groups = ceil_div<std::int64_t>(all_rows, quantized_rows);
  if (row_groups * out == 0) return;
  Kokkos::parallel_for(
      "kformer::quantized_linear_forward[kokkos]", team_policy(exec, row_groups * out, units),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t o = team.league_rank() / row_groups;
        const std::int64_t row = team.league_rank() % row_groups * quantized_rows;
        const int rows = static_cast<int>(Kokkos::min<std::int64_t>(quantized_rows, all_rows - row));
        ActivationScale<C> scales[quantized_rows] = {ActivationScale<C>(0), ActivationScale<C>(0),
                                                     ActivationScale<C>(0), ActivationScale<C>(0)};
        if (exact)  // not constexpr: nvcc cannot capture there what it has not met before
          for (int r = 0; r < rows; ++r) {
            C greatest = 0;
            Kokkos::parallel_reduce(
                Kokkos::TeamVectorRange(team, in),
                [&](std::int64_t i, C& most) {
                  most = Kokkos::fmax(most, ActivationScale<C>::magnitude(static_cast<C>(x(row + r, i))));
                },
                Kokkos::Max<C>(greatest));
            scales[r] = ActivationScale<C>(in > 0 ? greatest : C(0));
          }
        RowSums<A> sums;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, units),
            [&](std::int64_t u, RowSums<A>& partial) {
              const std::int64_t first = u * unit;
              const QuantizedUnit<format, T> weights{
                  blocks.template weights<C>(o, first / Block::weights),
                  static_cast<int>(first % Block::weights),
                  static_cast<int>(Kokkos::min<std::int64_t>(unit, in - first))};
              if constexpr (activations == Activations::full)
                weights.add_full(x, row, rows, first, partial);
              else
                weights.add_int8(x, row, rows, first, exact ? scales : nullptr, partial);
            },
            Kokkos::Sum<RowSums<A>>(sums));
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows), [&](int r) {
          A all = sums.of[r];
          for (std::int64_t k = 0; k < rank; ++k)
            all += static_cast<A>(static_cast<C>(xa(row + r, k)) * static_cast<C>(b(o, k)));
          const C sum = static_cast<C>(static_cast<A>(alpha) * all);
          y(row + r, o) = T(residual.data ? static_cast<C>(residual(row + r, o)) + sum : sum);
        });
      });
}

}  // namespace kformer::Impl
