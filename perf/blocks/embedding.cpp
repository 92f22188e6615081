// SPDX-License-Identifier: MIT
#include "kformer/ops/embedding.hpp"

#include <cmath>

#include "blocks/block_cases.hpp"

namespace kformer::perf {

namespace {

struct Shape {
  std::int64_t rows, vocabulary, hidden;

  // Rows of the table that a call touches: ids are uniform, and some occur more than once.
  std::int64_t distinct_rows() const {
    const auto words = static_cast<double>(vocabulary);
    return std::llround(-words * std::expm1(static_cast<double>(rows) * std::log1p(-1 / words)));
  }
};

template <class T>
class Forward {
 public:
  Forward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_ids(random_integers(exec, seed, s.rows, s.vocabulary)),
        m_weight(random_array<T**>(exec, seed + 1, "kformer::perf::weight", s.vocabulary, s.hidden)),
        m_y("kformer::perf::y", s.rows, s.hidden) {}
  std::size_t bytes() const { return 2 * bytes_of(m_y); }  // as many rows of the table
  void launch(const Space& exec) const { embedding_forward(exec, m_ids, m_weight, m_y); }

 private:
  Array<std::int32_t*> m_ids;
  Array<T**> m_weight, m_y;
};

template <class T>
class Backward {
 public:
  Backward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_ids(random_integers(exec, seed, s.rows, s.vocabulary)),
        m_dy(random_array<T**>(exec, seed + 1, "kformer::perf::dy", s.rows, s.hidden)),
        m_dweight("kformer::perf::dweight", s.vocabulary, s.hidden) {}
  std::size_t bytes() const {
    return bytes_of(m_dy) + m_dy.size() * sizeof(compute_t<T>);
  }  // rows of the gradient
  void launch(const Space& exec) const { embedding_backward(exec, m_ids, m_dy, m_dweight); }

 private:
  Array<std::int32_t*> m_ids;
  Array<T**> m_dy;
  Array<compute_t<T>**> m_dweight;
};

// Backward reads and writes each row of the gradient that a token takes.
Case make_case(DType dtype, const Shape& s, bool backward) {
  const std::int64_t elements = s.rows * s.hidden, taken = s.distinct_rows() * s.hidden;
  return {
      .block = "embedding",
      .direction = backward ? "backward" : "forward",
      .dtype = dtype,
      .tail = 'H' + std::to_string(s.hidden),
      .bytes = bytes_of_arrays(1, elements, dtype) +
               (backward ? bytes_of_arrays(2, taken, compute_dtype(dtype)) : bytes_of_arrays(1, taken, dtype)),
      .written =
          backward ? bytes_of_arrays(1, taken, compute_dtype(dtype)) : bytes_of_arrays(1, elements, dtype),
      .shape = {{"rows", s.rows}, {"vocabulary", s.vocabulary}, {"hidden", s.hidden}},
      .make = backward ? rotating<Backward>(dtype, s) : rotating<Forward>(dtype, s)};
}

}  // namespace

std::vector<Case> embedding_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  for (const bool backward : {false, true})
    sizes.for_each_hidden([&](DType dtype, std::int64_t hidden) {
      cases.push_back(make_case(dtype, {sizes.elements / hidden, sizes.table / hidden, hidden}, backward));
    });
  return cases;
}

}  // namespace kformer::perf
