// SPDX-License-Identifier: MIT
#include "kformer/core/scalar.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/errors.hpp"
#include "support/every_kernel.hpp"

namespace kformer::Testing {
namespace {

template <class T>
struct Format;
template <>
struct Format<bf16> {
  static constexpr int exponent_bits = 8, mantissa_bits = 7;
};
template <>
struct Format<f16> {
  static constexpr int exponent_bits = 5, mantissa_bits = 10;
};

/// The value of a bit pattern by the definition of IEEE 754 interchange formats.
template <class T>
double value_of(std::uint16_t bits) {
  constexpr int m = Format<T>::mantissa_bits, e = Format<T>::exponent_bits;
  constexpr int bias = (1 << (e - 1)) - 1;
  const int exponent = (bits >> m) & ((1 << e) - 1), mantissa = bits & ((1 << m) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << e) - 1)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - m);
  return sign * std::ldexp(mantissa + (1 << m), exponent - bias - m);
}

/// The bits of infinity.
template <class T>
constexpr unsigned infinity_bits = ((1u << Format<T>::exponent_bits) - 1) << Format<T>::mantissa_bits;

/// Every pattern converted to float and back, on the execution space.
template <class T>
struct Converted {
  Kokkos::View<float*, Kokkos::HostSpace> value;
  Kokkos::View<std::uint16_t*, Kokkos::HostSpace> bits;
};

template <class T>
Converted<T> convert_every_pattern() {
  Kokkos::View<float*, typename Exec::memory_space> value("value", 65536);
  Kokkos::View<std::uint16_t*, typename Exec::memory_space> bits("bits", 65536);
  Kokkos::parallel_for(
      "kformer::Testing::convert", Kokkos::RangePolicy<Exec>(0, 65536), KOKKOS_LAMBDA(int i) {
        T half;
        half.bits = static_cast<std::uint16_t>(i);
        value(i) = static_cast<float>(half);
        bits(i) = T(value(i)).bits;
      });
  return {Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, value),
          Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, bits)};
}

/// Rounds every value on the execution space.
template <class T>
std::vector<unsigned> rounded(const std::vector<float>& values) {
  Kokkos::View<const float*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(values.data(),
                                                                                              values.size());
  Kokkos::View<float*, typename Exec::memory_space> in("in", values.size());
  Kokkos::View<std::uint16_t*, typename Exec::memory_space> out("out", values.size());
  Kokkos::deep_copy(in, host);
  Kokkos::parallel_for(
      "kformer::Testing::round", Kokkos::RangePolicy<Exec>(0, values.size()),
      KOKKOS_LAMBDA(std::size_t i) { out(i) = T(in(i)).bits; });
  const auto back = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, out);
  return {back.data(), back.data() + back.size()};
}

template <class T>
unsigned rounded(float value) {
  return rounded<T>(std::vector<float>{value}).front();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(scalar)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_pattern_has_its_value_and_survives_a_round_trip, T, Halves) {
  const auto converted = convert_every_pattern<T>();
  int wrong = 0;
  for (unsigned i = 0; i < 65536; ++i) {
    const double expected = value_of<T>(static_cast<std::uint16_t>(i));
    const float got = converted.value(i);
    if (std::isnan(expected)) {
      wrong += !std::isnan(got) || !std::isnan(value_of<T>(converted.bits(i)));
    } else {
      wrong += static_cast<double>(got) != expected || std::signbit(got) != std::signbit(expected) ||
               converted.bits(i) != i;
    }
  }
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(floats_round_to_nearest_even, T, Halves) {
  // Between each two neighbours: just below the middle, the middle, just above. Beyond the largest finite value
  // the next step of the same size represents infinity.
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values;
  std::vector<unsigned> expected;
  for (unsigned low = 0; low < infinity_bits<T>; ++low) {
    const double a = value_of<T>(static_cast<std::uint16_t>(low));
    const double below = low == 0 ? 0 : value_of<T>(static_cast<std::uint16_t>(low - 1));
    const double b =
        low + 1 == infinity_bits<T> ? a + (a - below) : value_of<T>(static_cast<std::uint16_t>(low + 1));
    const double exact = a + (b - a) / 2;
    const float middle = static_cast<float>(exact);
    BOOST_REQUIRE(static_cast<double>(middle) == exact);
    const unsigned even = low % 2 == 0 ? low : low + 1;
    for (const auto& [value, nearest] : {std::pair{std::nextafter(middle, 0.0f), low}, std::pair{middle, even},
                                         std::pair{std::nextafter(middle, infinity), low + 1}}) {
      values.push_back(value);
      expected.push_back(nearest);
      values.push_back(-value);
      expected.push_back(nearest | 0x8000u);
    }
  }
  const auto got = rounded<T>(values);
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] != expected[i];
  BOOST_TEST(wrong == 0);
  BOOST_TEST(got.size() == 6 * infinity_bits<T>);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_beyond_the_range_becomes_infinity, T, Halves) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  BOOST_TEST(rounded<T>(infinity) == infinity_bits<T>);
  BOOST_TEST(rounded<T>(-infinity) == (infinity_bits<T> | 0x8000u));
  BOOST_TEST(rounded<T>(std::numeric_limits<float>::max()) == infinity_bits<T>);
  BOOST_TEST(rounded<T>(std::numeric_limits<float>::lowest()) == (infinity_bits<T> | 0x8000u));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_too_small_becomes_zero_with_its_sign, T, Halves) {
  BOOST_TEST(rounded<T>(0.0f) == 0u);
  BOOST_TEST(rounded<T>(-0.0f) == 0x8000u);
  BOOST_TEST(rounded<T>(std::numeric_limits<float>::denorm_min()) == 0u);
  BOOST_TEST(rounded<T>(-std::numeric_limits<float>::denorm_min()) == 0x8000u);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_stays_nan_wherever_its_payload_lies, T, Halves) {
  for (const std::uint32_t sign : {0u, 0x80000000u})
    for (int bit = 0; bit < 23; ++bit) {
      const unsigned got = rounded<T>(Kokkos::bit_cast<float>(sign | 0x7f800000u | (1u << bit)));
      BOOST_TEST(std::isnan(value_of<T>(static_cast<std::uint16_t>(got))), "payload bit " << bit);
      BOOST_TEST((got & 0x8000u) == sign >> 16);
    }
}

BOOST_AUTO_TEST_CASE(known_values) {
  BOOST_TEST(f16(1.0f).bits == 0x3c00);
  BOOST_TEST(f16(-2.0f).bits == 0xc000);
  BOOST_TEST(f16(65504.0f).bits == 0x7bff);
  BOOST_TEST(f16(65519.9f).bits == 0x7bff);
  BOOST_TEST(f16(65520.0f).bits == 0x7c00);
  BOOST_TEST(f16(0x1p-24f).bits == 0x0001);
  BOOST_TEST(f16(0x1p-25f).bits == 0x0000);
  BOOST_TEST(f16(0x1p-14f).bits == 0x0400);
  BOOST_TEST(bf16(1.0f).bits == 0x3f80);
  BOOST_TEST(bf16(-2.0f).bits == 0xc000);
  BOOST_TEST(bf16(3.140625f).bits == 0x4049);
  BOOST_TEST(bf16(0x1p-133f).bits == 0x0001);
}

static_assert(std::is_same_v<compute_t<float>, float> && std::is_same_v<compute_t<bf16>, float> &&
              std::is_same_v<compute_t<f16>, float> && std::is_same_v<compute_t<double>, double> &&
              std::is_same_v<compute_t<const bf16>, float>);
static_assert(Scalar<float> && Scalar<const f16> && !Scalar<int> && !Scalar<long double>);
static_assert(dtype_of<float> == DType::f32 && dtype_of<bf16> == DType::bf16 && dtype_of<f16> == DType::f16 &&
              dtype_of<double> == DType::f64 && dtype_of<std::int32_t> == DType::i32 &&
              dtype_of<std::uint8_t> == DType::u8 && dtype_of<const double> == DType::f64);

BOOST_AUTO_TEST_CASE(types_have_names_and_sizes) {
  const struct {
    DType dtype;
    const char* name;
    std::size_t size;
    DType computed;
  } rows[] = {{DType::f32, "f32", 4, DType::f32}, {DType::bf16, "bf16", 2, DType::f32},
              {DType::f16, "f16", 2, DType::f32}, {DType::f64, "f64", 8, DType::f64},
              {DType::i32, "i32", 4, DType::f32}, {DType::u8, "u8", 1, DType::f32}};
  for (const auto& row : rows) {
    BOOST_TEST(to_string(row.dtype) == row.name);
    BOOST_TEST(size_of(row.dtype) == row.size);
    BOOST_TEST((compute_dtype(row.dtype) == row.computed), row.name);
  }
}

BOOST_AUTO_TEST_CASE(dispatch_calls_with_the_named_type) {
  const auto name = [](DType dtype) {
    return dispatch_dtype(dtype,
                          []<class T>(std::type_identity<T>) { return std::string(to_string(dtype_of<T>)); });
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    BOOST_TEST(name(dtype) == to_string(dtype));
  check_error<NotSupported>(
      [&] { name(DType::i32); },
      "kformer::dispatch_dtype: i32 is not a floating-point type; use f32, bf16, f16 or f64");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
