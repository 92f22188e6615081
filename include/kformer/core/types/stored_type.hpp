// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <variant>

#include "kformer/core/types/dtype.hpp"
#include "kformer/core/types/quantized_format.hpp"

namespace kformer {

/// A type of numbers that the library does not compute with, by its name in files: `I64`, `BOOL`, `F8_E4M3`.
struct OtherType {
  std::string name;  ///< as in the file
  /// Whether both have the same name.
  friend bool operator==(const OtherType&, const OtherType&) = default;
};

/// How a file stores a tensor: as single numbers, as blocks of quantised weights, or as something else.
using StoredType = std::variant<DType, QuantizedFormat, OtherType>;

}  // namespace kformer
