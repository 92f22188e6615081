// SPDX-License-Identifier: MIT
#include "kformer/ops/embedding.hpp"

#include "blocks/block_cases.hpp"

namespace kformer::perf {

namespace {

struct Shape {
  std::int64_t rows, vocabulary, hidden;
};

template <class T>
class Forward {
 public:
  Forward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_ids(random_integers(exec, seed, s.rows, s.vocabulary)),
        m_weight(random_array<T**>(exec, seed + 1, "kformer::perf::weight", s.vocabulary, s.hidden)),
        m_y("kformer::perf::y", s.rows, s.hidden) {}
  std::size_t bytes() const { return bytes_of(m_weight, m_y); }
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
  std::size_t bytes() const { return bytes_of(m_dy, m_dweight); }
  void launch(const Space& exec) const { embedding_backward(exec, m_ids, m_dy, m_dweight); }

 private:
  Array<std::int32_t*> m_ids;
  Array<T**> m_dy;
  Array<compute_t<T>**> m_dweight;
};

// Backward reads and writes a row of the gradient for each row that it reads.
Case make_case(DType dtype, const Shape& s, bool backward) {
  const std::int64_t elements = s.rows * s.hidden;
  return {.block = "embedding",
          .direction = backward ? "backward" : "forward",
          .dtype = dtype,
          .tail = 'H' + std::to_string(s.hidden),
          .bytes = backward ? bytes_of_arrays(1, elements, dtype) +
                                  bytes_of_arrays(2, elements, compute_dtype(dtype))
                            : bytes_of_arrays(2, elements, dtype),
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
