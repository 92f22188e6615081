// SPDX-License-Identifier: MIT
// The passes of the unfused forms against their formulas, on numbers whose products and sums are exact before they are
// rounded to the storage type.
#include "passes/passes.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

#include "kformer/core/scalar.hpp"

namespace {

using namespace kformer;
using perf::Array;
using perf::Space;

// Rows that are no whole vectors, and arrays that exceed the caches, whose results are written past them.
struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape shapes[] = {{3, 75}, {2, 16}, {4100, 4096}};

// Multiples of 1/8 in [−4, 4), the same for the same seed.
template <class DataType>
Array<DataType> eighths(int seed, std::int64_t rows, std::int64_t columns) {
  using T = typename Array<DataType>::value_type;
  const Array<DataType> array("eighths", rows, columns);
  const auto host = Kokkos::create_mirror_view(array);
  for (std::int64_t i = 0; i < rows * columns; ++i)
    host.data()[i] = T(static_cast<compute_t<T>>((i * 37 + seed * 11) % 64 - 32) / 8);
  Kokkos::deep_copy(array, host);
  return array;
}

// Calls `expected(row, column)` for every element of the result.
template <class T, class F>
void check(const Array<T**>& result, const F& expected) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), result);
  std::int64_t wrong = 0;
  for (std::size_t row = 0; row < host.extent(0); ++row)
    for (std::size_t column = 0; column < host.extent(1); ++column)
      wrong += compute_t<T>(host(row, column)) != compute_t<T>(T(expected(row, column)));
  BOOST_TEST(wrong == 0);
}

// What the array holds now.
template <class T>
auto on_host(const Array<T**>& array) {
  const auto host = Kokkos::create_mirror(array);
  Kokkos::deep_copy(host, array);
  return [host](std::size_t row, std::size_t column) { return compute_t<T>(host(row, column)); };
}

template <class T>
void check_pairs() {
  for (const auto& [rows, columns] : shapes) {
    const auto a = eighths<T**>(1, rows, columns), b = eighths<T**>(2, rows, columns);
    const auto x = on_host<T>(a), y = on_host<T>(b);
    const Array<T**> result("result", rows, columns);
    perf::add(Space(), tensor_ref(a), tensor_ref(b), tensor_ref(result));
    check<T>(result, [&](auto row, auto column) { return x(row, column) + y(row, column); });
    perf::multiply(Space(), tensor_ref(a), tensor_ref(b), tensor_ref(result));
    check<T>(result, [&](auto row, auto column) { return x(row, column) * y(row, column); });
    perf::add(Space(), tensor_ref(a), tensor_ref(b), tensor_ref(a));
    check<T>(a, [&](auto row, auto column) { return x(row, column) + y(row, column); });
  }
}

// One head, several, heads that are no whole vectors, and of either more than the caches hold.
struct Heads {
  std::int64_t rows, heads, half, more_columns;
};
constexpr Heads heads[] = {{5, 1, 16, 0}, {7, 3, 12, 5}, {4, 2, 3, 6}, {4100, 32, 64, 32}, {4100, 86, 24, 0}};

template <class T>
void check_rotation() {
  constexpr std::int64_t positions = 4;
  using C = compute_t<T>;
  for (const auto& [rows, count, half, more_columns] : heads) {
    const std::int64_t columns = 2 * half * count;
    const auto width = static_cast<std::size_t>(half);
    const auto x = eighths<T**>(3, rows, columns + more_columns);
    const auto cos = eighths<C**>(4, positions, half), sin = eighths<C**>(5, positions, half);
    const auto from = on_host<T>(x);
    const auto c = on_host<C>(cos), s = on_host<C>(sin);
    const auto rotated_from = [&](std::size_t row, std::size_t column) {
      return column / width % 2 == 1 ? from(row, column - width) : -from(row, column + width);
    };
    const Array<T**> rotated("rotated", rows, columns), result("result", rows, columns);
    perf::rotate_half(Space(), tensor_ref(x), half, tensor_ref(rotated));
    check<T>(rotated, rotated_from);
    perf::apply_rotation(Space(), tensor_ref(x), tensor_ref(rotated), tensor_ref(cos), tensor_ref(sin),
                         tensor_ref(result));
    check<T>(result, [&](std::size_t row, std::size_t column) {
      const std::size_t position = row % positions, pair = column % width;
      return from(row, column) * c(position, pair) + rotated_from(row, column) * s(position, pair);
    });
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(passes)

BOOST_AUTO_TEST_CASE(sums_and_products) {
  check_pairs<float>();
  check_pairs<bf16>();
  check_pairs<f16>();
  check_pairs<double>();
}

BOOST_AUTO_TEST_CASE(rotations) {
  check_rotation<float>();
  check_rotation<bf16>();
  check_rotation<f16>();
  check_rotation<double>();
}

BOOST_AUTO_TEST_SUITE_END()
