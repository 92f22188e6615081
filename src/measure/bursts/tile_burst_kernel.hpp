// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "ops/linear/host/amx/configuration.hpp"

namespace kformer::measure {

/// As an `ArithmeticBurst`: products of whole tiles in registers. `Machine` is that of
/// ops/linear/host/amx/product.hpp.
template <class Machine>
struct TileBurst {
  /// Intel's processors start a product every 16 cycles and have its result after 52 (Optimization Reference
  /// Manual).
  static constexpr int sums = 4;
  static constexpr int rows = 16, cols = 16, terms = 32;  ///< of a product of whole tiles
  static constexpr double flops_per_iteration = 2.0 * sums * rows * cols * terms;

  /// The sum of one number of each tile.
  static float run(std::int64_t iterations, float factor) {
    constexpr int left = sums, right = sums + 1;
    std::uint16_t factors[terms];
    for (std::uint16_t& bits : factors)
      bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(factor) >> 16);
    float row_of[sums][cols];
    Machine::configure(Impl::host::whole_tiles);
    // The rows of a tile are equal: all of them are this one in memory.
    Machine::template load<left>(factors, 0);
    Machine::template load<right>(factors, 0);
    [&]<int... sum>(std::integer_sequence<int, sum...>) {
      (Machine::template zero<sum>(), ...);
      for (std::int64_t n = 0; n < iterations; ++n) (Machine::template multiply_bf16<sum, left, right>(), ...);
      (Machine::template store<sum>(row_of[sum], 0), ...);
    }(std::make_integer_sequence<int, sums>{});
    Machine::release();
    float total = 0;
    for (const auto& row : row_of) total += row[0];
    return total;
  }
};

}  // namespace kformer::measure
