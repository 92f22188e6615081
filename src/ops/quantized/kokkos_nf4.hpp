// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/launch.hpp"
#include "ops/quantized/blocks.hpp"
#include "ops/quantized/rules.hpp"

/// \file
/// Portable quantisation to NF4. The scales of blocks are quantised, too, by numbers of the whole matrix; so there is a
/// launch for each step, and between them the blocks themselves hold their absmax, where their codes will be.

namespace kformer::Impl {

/// A matrix of NF4 that is being written.
struct Nf4Output {
  using Block = QuantizedBlock<QuantizedFormat::nf4>;
  std::uint8_t* data;
  std::int64_t blocks, blocks_of_row;
  std::uint8_t* tail;

  explicit Nf4Output(const QuantizedOutput& matrix)
      : data(reinterpret_cast<std::uint8_t*>(matrix.data)),
        blocks(matrix.rows * ceil_div<std::int64_t>(matrix.cols, Block::weights)),
        blocks_of_row(ceil_div<std::int64_t>(matrix.cols, Block::weights)),
        tail(data + blocks * Block::bytes) {}

  KOKKOS_FUNCTION std::uint8_t* block(std::int64_t number) const { return data + number * Block::bytes; }
  KOKKOS_FUNCTION std::uint8_t* absmax(std::int64_t number) const { return block(number) + 1; }
};

/// The greatest magnitude in block `number`; NaN if one is NaN.
template <class T>
KOKKOS_FUNCTION float nf4_absmax(const Strided<const T, 2>& x, const Nf4Output& to, std::int64_t number) {
  const std::int64_t row = number / to.blocks_of_row,
                     first = number % to.blocks_of_row * Nf4Output::Block::weights;
  float absmax = 0;
  for (std::int64_t i = first; i < Kokkos::min(x.extent[1], first + Nf4Output::Block::weights); ++i) {
    const float size = Kokkos::fabs(static_cast<float>(x(row, i)));
    if (!(size <= absmax)) absmax = size;
    if (size != size) break;
  }
  return absmax;
}

template <class T>
KOKKOS_FUNCTION void nf4_store_codes(const Strided<const T, 2>& x, const Nf4Output& to, std::int64_t number) {
  const std::int64_t row = number / to.blocks_of_row,
                     first = number % to.blocks_of_row * Nf4Output::Block::weights;
  // Where all weights are 0, or below the least normal number, their codes stay in range.
  const float by_absmax = 1 / Kokkos::fmax(nf4_absmax(x, to, number), 1e-38f);
  std::uint8_t* codes = to.block(number) + 1;
  for (int byte = 0; byte < Nf4Output::Block::weights / 2; ++byte) {
    int pair[2];
    for (int i = 0; i < 2; ++i) {
      const std::int64_t col = first + 2 * byte + i;
      pair[i] = nf4_code(col < x.extent[1] ? static_cast<float>(x(row, col)) * by_absmax : 0);
    }
    codes[byte] = static_cast<std::uint8_t>(pair[0] << 4 | pair[1]);
  }
}

/// The codes of the absmax of 256 blocks, and their nested scale.
KOKKOS_INLINE_FUNCTION void nf4_store_scales(const Nf4Output& to, std::int64_t group) {
  const std::int64_t first = group * nf4_blocks_per_scale,
                     end = Kokkos::min(to.blocks, first + nf4_blocks_per_scale);
  const float offset = float_at(to.tail);
  float nested = 0;
  for (std::int64_t b = first; b < end; ++b) {
    const float size = Kokkos::fabs(float_at(to.absmax(b)) - offset);
    if (!(size <= nested)) nested = size;
  }
  store_float(to.tail + 4 * (1 + group), nested);
  const float by_nested = 1 / Kokkos::fmax(nested, 1e-38f);
  for (std::int64_t b = first; b < end; ++b)
    *to.block(b) = static_cast<std::uint8_t>(nf4_absmax_code((float_at(to.absmax(b)) - offset) * by_nested));
}

template <class T, class Exec>
void quantize_nf4_kokkos(const Exec& exec, const Quantize& p) {
  const auto x = p.x.as<const T, 2>();
  const Nf4Output to(p.matrix);
  if (to.blocks == 0) return;
  using Range = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(
      "kformer::quantize[kokkos, absmax]", Range(exec, 0, to.blocks),
      KOKKOS_LAMBDA(std::int64_t number) { store_float(to.absmax(number), nf4_absmax(x, to, number)); });
  // One team, so that the order of the sum does not depend on the number of threads of a host.
  Kokkos::parallel_for(
      "kformer::quantize[kokkos, mean]", team_policy(exec, 1, to.blocks),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        double sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, to.blocks),
            [&](std::int64_t b, double& part) { part += static_cast<double>(float_at(to.absmax(b))); }, sum);
        Kokkos::single(Kokkos::PerTeam(team), [&] {
          const auto mean = static_cast<float>(sum / static_cast<double>(to.blocks));
          store_float(to.tail, is_finite(mean) ? mean : Kokkos::Experimental::quiet_NaN_v<float>);
        });
      });
  const std::int64_t groups = ceil_div(to.blocks, nf4_blocks_per_scale);
  Kokkos::parallel_for(
      "kformer::quantize[kokkos, scales]", Range(exec, 0, groups),
      KOKKOS_LAMBDA(std::int64_t group) { nf4_store_scales(to, group); });
  Kokkos::parallel_for(
      "kformer::quantize[kokkos, codes]", Range(exec, 0, to.blocks),
      KOKKOS_LAMBDA(std::int64_t number) { nf4_store_codes(x, to, number); });
}

}  // namespace kformer::Impl
