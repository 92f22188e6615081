// SPDX-License-Identifier: MIT
#pragma once

#include "run.hpp"

/// \file
/// What the unfused forms of the blocks do between calls of the library: one pass over memory each.

namespace kformer::perf {

/// Calls `f(row)` for each of the rows, on all threads.
template <class F>
void for_each_row(const Space& exec, const char* label, std::size_t rows, const F& f) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Space>(exec, 0, static_cast<std::int64_t>(rows)), f);
}

/// `result = f(a, b)`, element by element; `result` shares no memory with the operands.
template <class A, class B, class R, class F>
void combine(const Space& exec, const A& a, const B& b, const R& result, const F& f) {
  using T = typename R::non_const_value_type;
  using C = compute_t<T>;
  for_each_row(exec, "kformer::perf::combine", result.extent(0), [=](std::int64_t row) {
    const T* KOKKOS_RESTRICT x = &a(row, 0);
    const T* KOKKOS_RESTRICT y = &b(row, 0);
    T* KOKKOS_RESTRICT to = &result(row, 0);
    const std::size_t count = result.extent(1);
    for (std::size_t i = 0; i < count; ++i) to[i] = T(f(C(x[i]), C(y[i])));
  });
}

/// `result += a`; they share no memory.
template <class A, class R>
void add_to(const Space& exec, const A& a, const R& result) {
  using T = typename R::non_const_value_type;
  using C = compute_t<T>;
  for_each_row(exec, "kformer::perf::add_to", result.extent(0), [=](std::int64_t row) {
    const T* KOKKOS_RESTRICT x = &a(row, 0);
    T* KOKKOS_RESTRICT to = &result(row, 0);
    const std::size_t count = result.extent(1);
    for (std::size_t i = 0; i < count; ++i) to[i] = T(C(to[i]) + C(x[i]));
  });
}

}  // namespace kformer::perf
