// SPDX-License-Identifier: MIT
#include "io/numbers.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kformer/core/stored_type.hpp"

namespace kformer::Impl {

namespace {

/// A float's sign and biased exponent are those of the bfloat16; only mantissa bits are missing.
double bf16_value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

double f16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int mantissa = bits & 0x3FF;
  double magnitude = std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 0) magnitude = std::ldexp(mantissa, -24);
  if (exponent == 0x1F) {
    magnitude =
        mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class Stored, class Convert>
std::vector<double> convert_all(std::span<const std::byte> bytes, Convert convert) {
  std::vector<double> values(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;  // copied out, because the data need not be aligned
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
  return values;
}

}  // namespace

std::optional<std::vector<double>> numbers_of(const StoredType& type, std::span<const std::byte> bytes) {
  const auto dtype = dtype_of_numbers(type);
  if (!dtype) return std::nullopt;
  switch (*dtype) {
    case DType::f64:
      return convert_all<double>(bytes, [](double stored) { return stored; });
    case DType::f32:
      return convert_all<float>(bytes, [](float stored) { return double{stored}; });
    case DType::f16:
      return convert_all<std::uint16_t>(bytes, f16_value);
    case DType::bf16:
      return convert_all<std::uint16_t>(bytes, bf16_value);
    case DType::i32:
    case DType::u8:
      break;
  }
  return std::nullopt;
}

}  // namespace kformer::Impl
