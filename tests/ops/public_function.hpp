// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kformer/ops/attention_index.hpp"
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

/// A public function with its operands, and the kernels it chooses from.
struct PublicFunction {
  const char* name;                  ///< without namespace
  const char* forced_as;             ///< what KFORMER_KERNEL calls it
  std::vector<std::string> kernels;  ///< the entries of its list
  std::function<void(const Exec&)> call;
};

template <class Problem, class F>
PublicFunction row(const char* name, F call) {
  PublicFunction function{name, Problem::function, {}, call};
  for (const auto& kernel : kernels<Problem, Exec>()) function.kernels.push_back(kernel.name);
  return function;
}

inline Vector<std::byte> workspace(std::size_t bytes) { return Vector<std::byte>("workspace", bytes); }

}  // namespace kformer::Testing
