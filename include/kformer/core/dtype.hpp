// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/types/dtype.hpp"

/// \file
/// Run-time properties of a storage type. Does not need Kokkos; the types themselves are in `scalar.hpp`.

namespace kformer {

/// The name used in decks, files and messages.
constexpr const char* to_string(DType dtype) { return name_of(dtype).data(); }

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::u8:
      return 1;
  }
  return 0;
}

/// Whether the numbers are floating-point ones.
constexpr bool is_float(DType dtype) { return dtype != DType::i32 && dtype != DType::u8; }

/// The type in which `dtype` is computed: `f64` for `f64`, otherwise `f32`.
constexpr DType compute_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace kformer
