// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "kformer/core/dtype.hpp"
#include "kformer/core/error.hpp"

/// \file
/// Scalars: the storage types `float`, `double`, `bf16`, `f16` and the type in which each of them is computed.
///
/// The 16-bit types are our own on every backend: Kokkos makes its half types plain `float` in host-only
/// builds, which would change the meaning of files and leave 16-bit code untested there. They store; they never
/// compute.

namespace kformer {

/// bfloat16 storage: 1 sign, 8 exponent, 7 mantissa bits. Conversion from float rounds to nearest even, NaN
/// stays NaN.
struct bf16 {
  std::uint16_t bits;  ///< the upper half of the float with this value

  bf16() = default;
  /// Rounds `value` to the nearest bfloat16, ties to even.
  KOKKOS_FUNCTION explicit bf16(float value) : bits(round(value)) {}
  /// The float with exactly this value.
  KOKKOS_FUNCTION explicit operator float() const { return Kokkos::bit_cast<float>(std::uint32_t(bits) << 16); }

 private:
  KOKKOS_FUNCTION static std::uint16_t round(float value) {
    const auto u = Kokkos::bit_cast<std::uint32_t>(value);
    // A NaN must stay one: its payload may lie in the bits that are cut off, so the quiet bit is set.
    const std::uint32_t nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (u >> 16) | 0x40u;
    return static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : nearest);
  }
};

/// IEEE binary16 storage: 1 sign, 5 exponent, 10 mantissa bits. Rounds to nearest even; overflow becomes
/// infinity, subnormals are kept, NaN stays NaN.
struct f16 {
  std::uint16_t bits;  ///< the IEEE binary16 encoding

  f16() = default;
  /// Rounds `value` to the nearest binary16, ties to even.
  KOKKOS_FUNCTION explicit f16(float value) : bits(round(value)) {}
  /// The float with exactly this value.
  KOKKOS_FUNCTION explicit operator float() const {
    const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    // Placing the bits in a float scales the value by 2^-112; multiplying undoes that, subnormals included.
    // Infinity and NaN keep their mantissa and get the exponent of their kind. No branches: this vectorises.
    const float scaled = Kokkos::bit_cast<float>(magnitude << 13) * 0x1p112f;
    const std::uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
    return Kokkos::bit_cast<float>(sign | special | Kokkos::bit_cast<std::uint32_t>(scaled));
  }

 private:
  KOKKOS_FUNCTION static std::uint16_t round(float value) {
    const auto u = Kokkos::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Subnormal: adding 0.5 leaves the value, rounded to a multiple of 2^-24, in the low mantissa bits.
    const float shifted = Kokkos::bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f;
    const std::uint32_t subnormal = Kokkos::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
    // Selections instead of branches: this vectorises.
    std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // rounds beyond 65504
    result = magnitude > 0x7f800000u ? 0x7e00u : result;   // NaN
    return static_cast<std::uint16_t>(sign | result);
  }
};

static_assert(sizeof(bf16) == 2 && std::is_trivially_copyable_v<bf16>);
static_assert(sizeof(f16) == 2 && std::is_trivially_copyable_v<f16>);

namespace Impl {
template <class T>
struct ComputeType;
template <>
struct ComputeType<float> : std::type_identity<float> {};
template <>
struct ComputeType<bf16> : std::type_identity<float> {};
template <>
struct ComputeType<f16> : std::type_identity<float> {};
template <>
struct ComputeType<double> : std::type_identity<double> {};
}  // namespace Impl

/// The type in which values stored as `T` are computed, and in which statistics and parameter gradients are
/// kept: `double` for `double`, otherwise `float`.
template <class T>
using compute_t = typename Impl::ComputeType<std::remove_const_t<T>>::type;

/// A storage type of the library.
template <class T>
concept Scalar = requires { typename Impl::ComputeType<std::remove_const_t<T>>::type; };

namespace Impl {
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<kformer::bf16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct DTypeOf<kformer::f16> : std::integral_constant<DType, DType::f16> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::f64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::u8> {};
}  // namespace Impl

/// The run-time name of a storage type.
template <class T>
inline constexpr DType dtype_of = Impl::DTypeOf<std::remove_const_t<T>>::value;

/// Calls `f(std::type_identity<T>{})` with the storage type that `dtype` names.
/// \throws NotSupported if `dtype` is not a floating-point storage type.
template <class F>
decltype(auto) dispatch_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(std::type_identity<float>{});
    case DType::bf16:
      return f(std::type_identity<bf16>{});
    case DType::f16:
      return f(std::type_identity<f16>{});
    case DType::f64:
      return f(std::type_identity<double>{});
    case DType::i32:
    case DType::u8:
      break;
  }
  throw NotSupported(std::string("kformer::dispatch_dtype: ") + to_string(dtype) +
                     " is not a floating-point type; use f32, bf16, f16 or f64");
}

}  // namespace kformer
