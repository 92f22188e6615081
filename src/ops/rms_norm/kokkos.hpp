// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/launch.hpp"
#include "kformer/ops/rms_norm.hpp"

/// \file
/// The portable kernels of RMSNorm: one team per row forward, one team per block of rows backward.

namespace kformer::Impl {

template <class C>
struct RmsNormRange;
template <>
struct RmsNormRange<float> {
  using Bits = std::uint32_t;
  static constexpr Bits exponent = 0x7f800000u;
  static constexpr float smallest_mean_square = 0x1p-100f;
};
template <>
struct RmsNormRange<double> {
  using Bits = std::uint64_t;
  static constexpr Bits exponent = 0x7ff0000000000000u;
  static constexpr double smallest_mean_square = 0x1p-900;
};

/// Whether the mean square of a row left the range where its squares are sums of normal numbers. A NaN did not.
template <class C>
KOKKOS_INLINE_FUNCTION bool rms_norm_needs_scaling(C mean_square) {
  return mean_square < RmsNormRange<C>::smallest_mean_square ||
         mean_square > Kokkos::Experimental::finite_max_v<C>;
}

/// The power of two that brings the greatest magnitude of such a row, or eps, to 1; 1 for a row with
/// infinities, which has the result that it has.
template <class C>
KOKKOS_INLINE_FUNCTION C rms_norm_power(C greatest, C eps) {
  using Range = RmsNormRange<C>;
  const C most = Kokkos::fmax(Kokkos::fmax(greatest, Kokkos::sqrt(eps)), Kokkos::Experimental::norm_min_v<C>);
  if (most > Kokkos::Experimental::finite_max_v<C>) return C(1);
  return C(1) / Kokkos::bit_cast<C>(Kokkos::bit_cast<typename Range::Bits>(most) & Range::exponent);
}

/// The rows of an operand of RMSNorm inside a kernel; null if the operand is absent.
template <class T>
struct NormRowPointers {
  T* data;
  std::int64_t heads, token_stride, head_stride;
  explicit NormRowPointers(const TensorRef& x)
      : data(static_cast<T*>(x.data)),
        heads(x.rank == 3 ? x.extent[1] : 1),
        token_stride(x.stride[0]),
        head_stride(x.rank == 3 ? x.stride[1] : 0) {}

  KOKKOS_FUNCTION T* operator[](std::int64_t row) const {
    return heads == 1 ? data + row * token_stride
                      : data + row / heads * token_stride + row % heads * head_stride;
  }
};

/// Forward of one row by a team.
template <class T>
class RmsNormForwardRow {
 public:
  using C = compute_t<T>;

  explicit RmsNormForwardRow(const RmsNormForward& p)
      : m_x(p.x),
        m_residual(p.residual),
        m_sum(p.sum),
        m_y(p.y),
        m_weight(static_cast<const T*>(p.weight.data)),
        m_rstd(static_cast<C*>(p.rstd.data)),
        m_fused(p.residual.present()),
        m_hidden(NormRows(p.x).hidden),
        m_eps(static_cast<C>(p.eps)) {}

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const T *x = m_x[row], *residual = m_residual[row], *weight = m_weight;
    T *sum = m_sum[row], *y = m_y[row];
    const bool fused = m_fused;
    const std::int64_t hidden = m_hidden;
    C squares = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, hidden),
        [&](std::int64_t h, C& partial) {
          C value = static_cast<C>(x[h]);
          if (fused) {
            // The norm is that of the sum as stored, so that backward sees the same values.
            const T rounded = T(value + static_cast<C>(residual[h]));
            sum[h] = rounded;
            value = static_cast<C>(rounded);
          }
          partial += value * value;
        },
        squares);
    team.team_barrier();
    const auto normalised = [&](std::int64_t h) { return static_cast<C>(fused ? sum[h] : x[h]); };
    C mean = squares / static_cast<C>(hidden) + m_eps, power = 1;
    if (rms_norm_needs_scaling(mean)) {
      C greatest = 0;
      Kokkos::parallel_reduce(
          Kokkos::TeamVectorRange(team, hidden),
          [&](std::int64_t h, C& most) { most = Kokkos::fmax(most, Kokkos::abs(normalised(h))); },
          Kokkos::Max<C>(greatest));
      power = rms_norm_power(greatest, m_eps);
      Kokkos::parallel_reduce(
          Kokkos::TeamVectorRange(team, hidden),
          [&](std::int64_t h, C& partial) {
            const C scaled = normalised(h) * power;
            partial += scaled * scaled;
          },
          squares);
      mean = squares / static_cast<C>(hidden) + m_eps * power * power;
    }
    const C scale = C(1) / Kokkos::sqrt(mean);
    Kokkos::single(Kokkos::PerTeam(team), [&] { m_rstd[row] = power * scale; });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, hidden), [&](std::int64_t h) {
      y[h] = T(normalised(h) * power * scale * static_cast<C>(weight[h]));
    });
  }

 private:
  NormRowPointers<const T> m_x, m_residual;
  NormRowPointers<T> m_sum, m_y;
  const T* m_weight;
  C* m_rstd;
  bool m_fused;
  std::int64_t m_hidden;
  C m_eps;
};

template <class T, class Exec>
void rms_norm_forward_kokkos(const Exec& exec, const RmsNormForward& p) {
  const NormRows rows(p.x);
  const RmsNormForwardRow<T> normalise(p);
  Kokkos::parallel_for(
      "kformer::rms_norm_forward[kokkos]", team_policy(exec, rows.count, rows.hidden),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) { normalise(team, team.league_rank()); });
}

/// The queries' teams come before the keys'.
template <class T, class Exec>
void qk_norm_forward_kokkos(const Exec& exec, const QkNormForward& p) {
  const NormRows q_rows(p.q.x), k_rows(p.k.x);
  const std::int64_t queries = q_rows.count;
  const RmsNormForwardRow<T> normalise_q(p.q), normalise_k(p.k);
  Kokkos::parallel_for(
      "kformer::qk_norm_forward[kokkos]", team_policy(exec, queries + k_rows.count, q_rows.hidden),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank();
        if (row < queries)
          normalise_q(team, row);
        else
          normalise_k(team, row - queries);
      });
}

/// Backward cuts rows into blocks, each of which sums its part of the weight gradient: up to 64 blocks in any
/// case, up to 256 where a block still has so many rows that its sums are little beside them. The cut depends
/// on the problem alone, so the order of the sums does too.
inline std::int64_t rms_norm_rows_per_block(std::int64_t rows) {
  const std::int64_t blocks = std::clamp<std::int64_t>(rows / 32, 64, 256);
  return std::max<std::int64_t>(1, ceil_div(rows, blocks));
}
inline std::int64_t rms_norm_row_blocks(std::int64_t rows) {
  return ceil_div(rows, rms_norm_rows_per_block(rows));
}

inline std::size_t rms_norm_backward_workspace(const RmsNormBackward& p) {
  const NormRows rows(p.x);
  return static_cast<std::size_t>(rms_norm_row_blocks(rows.count) * rows.hidden) *
         size_of(compute_dtype(p.x.dtype));
}

template <class T, class Exec>
void rms_norm_backward_kokkos(const Exec& exec, const RmsNormBackward& p, const Workspace& workspace) {
  using C = compute_t<T>;
  const NormRowPointers<const T> x_rows(p.x), dy_rows(p.dy), dsum_rows(p.dsum);
  const NormRowPointers<T> dx_rows(p.dx);
  const T* weight = static_cast<const T*>(p.weight.data);
  const C* rstd = static_cast<const C*>(p.rstd.data);
  C* dweight = static_cast<C*>(p.dweight.data);
  const bool fused = p.dsum.present();
  const std::int64_t rows = NormRows(p.x).count, hidden = NormRows(p.x).hidden,
                     blocks = rms_norm_row_blocks(rows);
  if (blocks == 0) return;
  const std::int64_t rows_per_block = rms_norm_rows_per_block(rows);
  auto* partial = static_cast<C*>(workspace.data);  // (blocks, hidden)
  Kokkos::parallel_for(
      "kformer::rms_norm_backward[kokkos]", team_policy(exec, blocks, hidden),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        C* mine = partial + team.league_rank() * hidden;
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, hidden), [&](std::int64_t h) { mine[h] = 0; });
        const std::int64_t first = team.league_rank() * rows_per_block;
        const std::int64_t last = Kokkos::min(rows, first + rows_per_block);
        for (std::int64_t row = first; row < last; ++row) {
          const T *x = x_rows[row], *dy = dy_rows[row], *dsum = dsum_rows[row];
          T* dx = dx_rows[row];
          const C scale = rstd[row];
          C dot = 0;
          Kokkos::parallel_reduce(
              Kokkos::TeamVectorRange(team, hidden),
              [&](std::int64_t h, C& sum) {
                sum += static_cast<C>(dy[h]) * static_cast<C>(weight[h]) * (static_cast<C>(x[h]) * scale);
              },
              dot);
          const C mean = dot / static_cast<C>(hidden);
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, hidden), [&](std::int64_t h) {
            const C g = static_cast<C>(dy[h]), xhat = static_cast<C>(x[h]) * scale;
            const C through = scale * (g * static_cast<C>(weight[h]) - xhat * mean);
            mine[h] += g * xhat;
            dx[h] = T(fused ? static_cast<C>(dsum[h]) + through : through);
          });
          team.team_barrier();
        }
      });
  if (p.dweight.size() == 0) return;
  Kokkos::parallel_for(
      "kformer::rms_norm_backward_weight[kokkos]", Kokkos::RangePolicy<Exec>(exec, 0, hidden),
      KOKKOS_LAMBDA(std::int64_t h) {
        C sum = 0;
        for (std::int64_t b = 0; b < blocks; ++b) sum += partial[b * hidden + h];
        dweight[h] += sum;
      });
}

}  // namespace kformer::Impl
