// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// \file
/// Tile registers of AMX (palette 1): eight of them, of up to 16 rows of up to 64 bytes. Free of Kokkos.

namespace kformer::Impl::host {

/// What `ldtilecfg` loads: the shape of each tile register. Both numbers of a register that is not used are
/// 0.
struct TileConfiguration {
  std::uint8_t palette, start_row, reserved[14];
  std::uint16_t row_bytes[16];  ///< of 8 registers, then zeros
  std::uint8_t rows[16];        ///< the same
};
static_assert(sizeof(TileConfiguration) == 64);

/// Every register is as large as it can be: short ends of matrices are filled up with zeros.
inline constexpr TileConfiguration whole_tiles{
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

}  // namespace kformer::Impl::host
