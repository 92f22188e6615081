// SPDX-License-Identifier: MIT
#pragma once

#include "run.hpp"

/// \file
/// What the unfused forms of the blocks do between calls of the library: one pass over memory each.

namespace kformer::perf {

/// Calls `f(row, first, begin, end)` until the ranges cover [0, width) once for every row and every `first`,
/// the multiples of `width` below `columns`: on a host with the whole range, for the compiler's vectors, on a
/// device with a column per thread, neighbours side by side.
template <class F>
void for_each_part(const Space& exec, const char* label, std::size_t rows, std::size_t columns,
                   std::size_t width, const F& f) {
  const auto count = static_cast<std::int64_t>(on_host ? rows : rows * columns);
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Space>(exec, 0, count), KOKKOS_LAMBDA(std::int64_t i) {
        if (on_host) {  // nvcc captures nothing in an if constexpr
          for (std::size_t first = 0; first < columns; first += width)
            f(static_cast<std::size_t>(i), first, std::size_t(0), width);
        } else {
          const std::size_t row = static_cast<std::size_t>(i) / columns,
                            column = static_cast<std::size_t>(i) % columns;
          f(row, column - column % width, column % width, column % width + 1);
        }
      });
}

/// `result = f(a, b)`, element by element; `result` shares no memory with the operands.
template <class A, class B, class R, class F>
void combine(const Space& exec, const A& a, const B& b, const R& result, const F& f) {
  using T = typename R::non_const_value_type;
  using C = compute_t<T>;
  const std::size_t columns = result.extent(1);
  for_each_part(
      exec, "kformer::perf::combine", result.extent(0), columns, columns,
      KOKKOS_LAMBDA(std::size_t row, std::size_t, std::size_t begin, std::size_t end) {
        const T* KOKKOS_RESTRICT x = &a(row, 0);
        const T* KOKKOS_RESTRICT y = &b(row, 0);
        T* KOKKOS_RESTRICT to = &result(row, 0);
        for (std::size_t i = begin; i < end; ++i) to[i] = T(f(C(x[i]), C(y[i])));
      });
}

/// `result += a`; they share no memory.
template <class A, class R>
void add_to(const Space& exec, const A& a, const R& result) {
  using T = typename R::non_const_value_type;
  using C = compute_t<T>;
  const std::size_t columns = result.extent(1);
  for_each_part(
      exec, "kformer::perf::add_to", result.extent(0), columns, columns,
      KOKKOS_LAMBDA(std::size_t row, std::size_t, std::size_t begin, std::size_t end) {
        const T* KOKKOS_RESTRICT x = &a(row, 0);
        T* KOKKOS_RESTRICT to = &result(row, 0);
        for (std::size_t i = begin; i < end; ++i) to[i] = T(C(to[i]) + C(x[i]));
      });
}

/// For `combine`: the sum of two numbers.
struct Sum {
  template <class C>
  KOKKOS_FUNCTION C operator()(C a, C b) const {
    return a + b;
  }
};

/// For `combine`: their product.
struct Product {
  template <class C>
  KOKKOS_FUNCTION C operator()(C a, C b) const {
    return a * b;
  }
};

}  // namespace kformer::perf
