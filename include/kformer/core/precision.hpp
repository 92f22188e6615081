// SPDX-License-Identifier: MIT
#pragma once

namespace kformer {

/// How exact the operands of matrix products are that are computed and never stored, such as attention weights.
/// Operands in memory have their storage type T, and sums are always made in `compute_t<T>`.
enum class Compute {
  storage,  ///< they may be rounded to T, where hardware multiplies that type faster
  full      ///< they stay in `compute_t<T>`
};

}  // namespace kformer
