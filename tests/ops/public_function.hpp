// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "kformer/ops/attention_index.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/sampling.hpp"
#include "support/every_kernel.hpp"

/// \file
/// A row of the table of public functions, and what its operands are made of.

namespace kformer::Testing {

using Memory = Exec::memory_space;
template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, Memory>;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Memory>;
template <class T>
using Tokens = Kokkos::View<T***, Kokkos::LayoutRight, Memory>;
template <class T>
using Heads = Kokkos::View<T****, Kokkos::LayoutRight, Memory>;

/// A functor of attention with both members of a mask: a query sees its own key and the two before it.
struct LastThreeKeys {
  KOKKOS_FUNCTION bool operator()(AttentionIndex at) const {
    return at.key <= at.query && at.query < at.key + 3;
  }
  KOKKOS_FUNCTION KeyRange keys(AttentionRows rows) const { return {rows.first - 2, rows.end}; }
};

/// The extents of operands.
struct Extents {
  std::int64_t times = 1;  ///< how many times as large as the smallest
  std::int64_t rows = 5 * times, in = 12 * times, out = 7 * times, head_dim = 8 * times;
  std::int64_t quantized = 64 * times;  ///< columns of a quantised weight
};

/// Operands of the functions that tests with and without an instance of the caller's call.
template <class T>
auto linear_cross_entropy_operands(const Extents& e = {}) {
  using C = compute_t<T>;
  return LinearCrossEntropyOperands{.x = Matrix<T>("x", e.rows, e.in),
                                    .weight = Matrix<T>("weight", e.out, e.in),
                                    .targets = Vector<std::int32_t>("targets", e.rows),
                                    .dloss = Vector<C>("dloss", e.rows),
                                    .loss = Vector<C>("loss", e.rows),
                                    .dx = Matrix<T>("dx", e.rows, e.in),
                                    .dweight = Matrix<C>("dweight", e.out, e.in)};
}
/// \copydoc linear_cross_entropy_operands
template <class T>
auto sample_operands(const Extents& e = {}) {
  return SampleOperands{.logits = Matrix<T>("logits", e.rows, e.in),
                        .history = Matrix<std::int32_t>("history", e.rows, 3),
                        .history_lengths = Vector<std::int32_t>("history_lengths", e.rows),
                        .positions = Vector<std::int32_t>("positions", e.rows),
                        .tokens = Vector<std::int32_t>("tokens", e.rows),
                        .log_probabilities = Vector<compute_t<T>>("log_probabilities", e.rows)};
}

/// A public function with its operands, and the kernels it chooses from.
struct PublicFunction {
  const char* name;                  ///< without namespace
  const char* forced_as;             ///< what KFORMER_KERNEL calls it
  std::vector<std::string> kernels;  ///< the entries of its list
  std::function<void(const Exec&)> call;
  std::function<void()> call_without_instance;  ///< if the default instance is of this space
};

/// `call` takes an instance or nothing.
template <class Problem, class F>
PublicFunction row(const char* name, F call) {
  PublicFunction function{name, Problem::function, {}, call, {}};
  if constexpr (std::is_same_v<Exec, Kokkos::DefaultExecutionSpace>) function.call_without_instance = call;
  for (const auto& kernel : kernels<Problem, Exec>()) function.kernels.push_back(kernel.name);
  return function;
}

inline Vector<std::byte> workspace(std::size_t bytes) { return Vector<std::byte>("workspace", bytes); }

}  // namespace kformer::Testing
