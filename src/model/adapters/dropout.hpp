// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cmath>

#include "kformer/core/scalar.hpp"
#include "kformer/model/impl/context_slice.hpp"
#include "kformer/model/lora_config.hpp"
#include "ops/sampling/philox.hpp"

/// \file
/// Dropout in front of an adapter. Its mask is a function of numbers that forward and backward share, so none is stored.

namespace kformer::Impl {

/// Which elements of the input of one adapter are kept. Those of four columns are the words of one Philox block.
struct DropoutMask {
  std::uint64_t seed = 0;
  std::uint32_t step = 0, map = 0, first_row = 0, threshold = 0;
  ContextSlice slice;  // chunks of no token: rows are all tokens
  std::size_t first_column = 0;
  std::size_t length = 1, stride = 1;  // rows of a sequence, and tokens from one to the next in the step

  static constexpr std::size_t columns_of_block = 4;

  DropoutMask() = default;
  /// \param probability of loss, in [0, 1)
  /// \param layer       of the model
  /// \param of_rank     which tokens the rows are, where ranks divide them; else chunks of no token
  /// \param column      number of the first column, where ranks divide them
  /// \param rows        of a sequence, which may be cut short
  /// \param tokens      of a sequence that is not
  DropoutMask(double probability, const DropoutDraw& draw, std::int64_t layer, Projection projection,
              const ContextSlice& of_rank = {}, std::size_t column = 0, std::int64_t rows = 1,
              std::int64_t tokens = 1)
      : seed(draw.seed),
        step(static_cast<std::uint32_t>(draw.step)),
        map(static_cast<std::uint32_t>(8 * layer + static_cast<std::int64_t>(projection))),
        first_row(static_cast<std::uint32_t>(draw.first_row)),
        threshold(static_cast<std::uint32_t>(std::min(std::round(probability * 4294967296.0), 4294967295.0))),
        slice(of_rank),
        first_column(column),
        length(static_cast<std::size_t>(rows)),
        stride(static_cast<std::size_t>(tokens)) {}

  /// The random words of four columns; a column whose word is below `threshold` is lost.
  KOKKOS_FUNCTION PhiloxBlock words(std::size_t row, std::size_t block) const {
    const auto own = static_cast<std::int64_t>(row / length * stride + row % length);
    const auto token = static_cast<std::uint32_t>(slice.chunk > 0 ? slice.token_of(slice.rank, own) : own);
    return philox({{static_cast<std::uint32_t>(block), first_row + token, step, map}}, seed);
  }
};

/// Calls `f(row, column, kept)` for all elements of a (rows, columns) array, on `exec`.
template <class Exec, class F>
void for_masked(const char* label, const Exec& exec, const DropoutMask& mask, std::size_t rows,
                std::size_t columns, const F& f) {
  constexpr std::size_t width = DropoutMask::columns_of_block;
  const std::size_t begin = mask.first_column, end = begin + columns, first_block = begin / width,
                    blocks = (end + width - 1) / width - first_block;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec>(exec, 0, rows * blocks), KOKKOS_LAMBDA(std::size_t index) {
        const std::size_t row = index / blocks, block = first_block + index % blocks;
        const PhiloxBlock words = mask.words(row, block);
        for (std::size_t i = 0; i < width; ++i)
          if (const std::size_t column = width * block + i; column >= begin && column < end)
            f(row, column - begin, words.word[i] >= mask.threshold);
      });
}

/// y = mask ⊙ x, without the factor 1/(1 − p).
template <class Exec, class X, class Y>
void drop(const Exec& exec, const DropoutMask& mask, const X& x, const Y& y) {
  using T = typename Y::non_const_value_type;
  for_masked(
      "kformer::DecoderLayer::dropout", exec, mask, x.extent(0), x.extent(1),
      KOKKOS_LAMBDA(std::size_t row, std::size_t column, bool kept) {
        y(row, column) = kept ? T(x(row, column)) : T(compute_t<T>(0));
      });
}

/// y += mask ⊙ x, likewise.
template <class Exec, class X, class Y>
void add_dropped(const Exec& exec, const DropoutMask& mask, const X& x, const Y& y) {
  using T = typename Y::non_const_value_type;
  using C = compute_t<T>;
  for_masked(
      "kformer::DecoderLayer::dropout_backward", exec, mask, x.extent(0), x.extent(1),
      KOKKOS_LAMBDA(std::size_t row, std::size_t column, bool kept) {
        if (kept) y(row, column) = T(static_cast<C>(y(row, column)) + static_cast<C>(x(row, column)));
      });
}

}  // namespace kformer::Impl
