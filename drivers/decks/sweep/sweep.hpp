// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "decks/engine/deck.hpp"
#include "kformer/core/types/attention_algorithm.hpp"
#include "kformer/core/types/names.hpp"
#include "kformer/core/types/precision.hpp"

/// \file
/// Shared by all decks that sweep over a grid of cases.

namespace kformer {

/// Which pass a case measures; a step is forward, backward and the optimizer's step, and belongs to layers.
enum class Direction { forward, backward, step };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 3> names_of<Direction> = {"forward", "backward", "step"};

/// How the axes of a sweep make its points.
enum class SweepMode { product, zip };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<SweepMode> = {"product", "zip"};

/// What a result is compared with.
enum class CheckReference { none, f64 };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<CheckReference> = {"none", "f64"};

/// The values of one axis.
template <class T>
using AxisValues = std::vector<T>;
/// One value of an axis.
template <class T>
using AxisValue = T;

/// The table [check].
struct CheckTable {
  CheckReference reference = CheckReference::f64;  ///< the same in double precision, or no check
  bool fail = true;                 ///< judge the error by the tolerance rule instead of only recording it
  std::int64_t max_seq_len = 1024;  ///< longer cases are not checked
  bool operator==(const CheckTable&) const = default;  ///< all keys equal
};

/// The table [tensors].
struct TensorsTable {
  std::filesystem::path input;                           ///< safetensors file with the inputs, absolute
  std::filesystem::path output;                          ///< safetensors file to write, absolute; empty = none
  bool operator==(const TensorsTable&) const = default;  ///< all keys equal
};

}  // namespace kformer
