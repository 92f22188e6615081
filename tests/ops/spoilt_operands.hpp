// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/core/workspace.hpp"
#include "kformer/ops/quantized.hpp"
#include "ops/dense_ref.hpp"

/// \file
/// Problems with one of their operands spoilt: another extent, another stride, the memory of another operand.

namespace kformer::Testing::spoilt_operands {

/// An extent of an operand, both by their number.
struct Extent {
  int operand, dimension;
  bool operator==(const Extent&) const = default;
};

/// An output, and an operand that it may be.
struct InPlace {
  int output, operand;
  bool operator==(const InPlace&) const = default;
};

/// What a function allows.
struct Rules {
  std::vector<int> outputs;
  std::vector<InPlace> in_place = {};
  std::vector<Extent> may_grow = {};    ///< by one, while all others stay
  std::vector<Extent> may_shrink = {};  ///< likewise
};

/// Memory that nobody reads: checks compare addresses.
constexpr std::size_t bytes_of_operand = std::size_t(1) << 14, most_operands = 20;
inline std::byte* place(std::size_t operand) {
  alignas(64) static std::byte memory[most_operands * bytes_of_operand];
  return memory + operand * bytes_of_operand;
}

template <class Problem>
void check(const Problem& problem) {
  Workspace enough;
  enough.data = place(most_operands - 1);
  enough.bytes = bytes_of_operand;
  if constexpr (requires { problem.check(); })
    problem.check();
  else if constexpr (requires { problem.check(enough); })
    problem.check(enough);
  else
    problem.check(enough, 1);
}

template <class Problem>
bool refused(const Problem& problem) {
  try {
    check(problem);
  } catch (const DimensionMismatch&) {
    return true;
  }
  return false;
}

template <class T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// Another extent in a dense operand.
TensorRef resized(const TensorRef& x, int dimension, int by) {
  std::vector<std::int64_t> extents(x.extent.begin(), x.extent.begin() + x.rank);
  extents[static_cast<std::size_t>(dimension)] += by;
  return dense(extents, x.dtype, x.data);
}

/// The problem is accepted, and refused with any one of its operands spoilt unless `rules` allow it. `of_operand`
/// are members of the problem, or functions that return a reference to an operand of it.
template <class Problem, class... OfOperand>
void check_operands(const char* name, Problem problem, const Rules& rules, OfOperand... of_operand) {
  const std::array<std::function<TensorRef&(Problem&)>, sizeof...(OfOperand)> all{of_operand...};
  const int count = static_cast<int>(all.size());
  BOOST_REQUIRE(all.size() < most_operands);
  for (int i = 0; i < count; ++i) all[i](problem).data = place(static_cast<std::size_t>(i));
  BOOST_CHECK_NO_THROW(check(problem));
  for (int i = 0; i < count; ++i) {
    const TensorRef own = all[i](problem);
    BOOST_REQUIRE(own.size() * size_of(own.dtype) <= bytes_of_operand);
    for (int r = 0; r < own.rank; ++r)
      for (const int by : {1, -1}) {
        Problem changed = problem;
        all[i](changed) = resized(own, r, by);
        BOOST_TEST(refused(changed) != contains(by > 0 ? rules.may_grow : rules.may_shrink, {i, r}),
                   name << ": extent " << r << " of operand " << i << " changed by " << by);
      }
    if (own.extent[own.rank - 1] > 1) {
      Problem changed = problem;
      for (int r = 0; r < own.rank; ++r) all[i](changed).stride[r] *= 2;
      BOOST_TEST(refused(changed), name << ": operand " << i << " with stride 2 along its last extent");
    }
    for (int j = 0; j < count; ++j) {
      if (i == j) continue;
      Problem changed = problem;
      all[i](changed).data = all[j](problem).data;
      const bool allowed = contains(rules.in_place, {i, j}) || contains(rules.in_place, {j, i});
      const bool written = contains(rules.outputs, i) || contains(rules.outputs, j);
      BOOST_TEST(refused(changed) == (written && !allowed),
                 name << ": operand " << i << " in the memory of operand " << j);
      if (!allowed) continue;
      all[i](changed).data = place(static_cast<std::size_t>(j)) + size_of(own.dtype);
      BOOST_TEST(refused(changed), name << ": operand " << i << " one element behind operand " << j);
    }
  }
}

/// A matrix whose codes an operand must not share where either is written; its extents are those of operands.
template <class Problem, class OfMatrix, class OfOperand>
void check_matrix(const char* name, Problem problem, OfMatrix matrix, OfOperand written,
                  bool any_rows = false) {
  std::invoke(matrix, problem).data = place(0);
  std::invoke(written, problem).data = place(1);
  BOOST_CHECK_NO_THROW(problem.check());
  for (const int by : {1, -1}) {
    Problem rows = problem, cols = problem;
    std::invoke(matrix, rows).rows += by;
    std::invoke(matrix, cols).cols += by;
    BOOST_TEST(refused(rows) != any_rows, name << ": rows of the matrix changed by " << by);
    BOOST_TEST(refused(cols), name << ": columns of the matrix changed by " << by);
  }
  const QuantizedMatrix all = std::invoke(matrix, problem);
  Problem shared = problem, nothing = problem;
  const std::size_t bytes = quantized_bytes(all.format, all.rows, all.cols);
  std::invoke(written, shared).data = place(0) + (bytes - 1) / 8 * 8;
  BOOST_TEST(refused(shared), name << ": an operand in the last codes of the matrix");
  std::invoke(written, shared).data = place(0) + (bytes + 7) / 8 * 8;
  BOOST_TEST(!refused(shared), name << ": an operand behind the codes of the matrix");
  std::invoke(matrix, nothing).data = nullptr;
  BOOST_TEST(refused(nothing), name << ": a matrix without data");
}

}  // namespace kformer::Testing::spoilt_operands
