// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>
#include <sstream>

#include "kformer/core/operands.hpp"

/// \file
/// Options are double; kernels may compute with less.

namespace kformer::Impl {

/// Whether kernels that compute in `computed` have a number for `value`: finite, and 0 only where it is 0.
inline bool is_held(double value, DType computed) {
  if (computed == DType::f64) return std::isfinite(value);
  const double size = std::abs(value);
  return size == 0 ||
         (size >= std::numeric_limits<float>::denorm_min() && size <= std::numeric_limits<float>::max());
}

/// Requires that kernels which compute in `computed` have a number for a finite option.
/// \throws NotSupported
inline void require_held(const Operands& all, const char* option, double value, DType computed) {
  if (is_held(value, computed)) return;
  std::ostringstream text;
  text << option << " is " << value << ", which is " << (std::abs(value) < 1 ? "0" : "infinite") << " as "
       << to_string(computed);
  all.require_option(false, text.str());
}

}  // namespace kformer::Impl
