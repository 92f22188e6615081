// SPDX-License-Identifier: MIT
// Products of several tiles and several steps of the sum, too large for the references: factors are −1, 0 and 1, so
// that every product, every sum and its storage in 16 bits is exact, in any order of summation.
#include <numeric>

#include "ops/linear_cases.hpp"

namespace kformer::Testing {
using namespace linear_cases;

namespace {

using Numbers = std::vector<double>;

/// m·v, or mᵀ·v.
template <class T>
Numbers product(const TestTensor<Exec, T>& m, bool transposed, const Numbers& v) {
  const auto values = m.template read<double>();
  const std::int64_t rows = values.extent(0), cols = values.extent(1);
  Numbers result(static_cast<std::size_t>(transposed ? cols : rows));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      result[transposed ? c : r] += values.values()[r * cols + c] * v[transposed ? r : c];
  return result;
}

/// The operands of a shape, and what checks a result: matrix · v for a vector of integers, none of them 0. A single
/// wrong element changes that for certain.
template <class T>
struct Exact {
  std::mt19937 generator{20261122};
  TestTensor<Exec, T> x, weight, dy, bias, y, dx;
  TestTensor<Exec, compute_t<T>> dweight;

  explicit Exact(Shape s)
      : x({s.rows, s.in}),
        weight({s.out, s.in}),
        dy({s.rows, s.out}),
        bias({s.out}),
        y({s.rows, s.out}),
        dx({s.rows, s.in}),
        dweight({s.out, s.in}) {
    std::uniform_int_distribution<int> sign(-1, 1);
    for (TestTensor<Exec, T>* factor : {&x, &weight, &dy})
      factor->fill([&](std::size_t) { return sign(generator); });
    const auto few = [](std::size_t i) { return static_cast<int>(i % 5); };
    bias.fill(few);
    y.fill(few);
    dweight.fill(few);
  }

  Numbers vector(std::int64_t n) {
    std::uniform_int_distribution<int> any(1, 9);
    Numbers v(static_cast<std::size_t>(n));
    for (double& e : v) e = any(generator);
    return v;
  }

  /// Every kernel but the reference; `expected` is result · v.
  template <class Problem, class S>
  void test(const Problem& problem, TestTensor<Exec, S>& result, const Numbers& v, const Numbers& expected) {
    problem.check();
    for (const auto& kernel : kernels<Problem, Exec>()) {
      if (kernel.name == std::string("reference") || !kernel.reject(problem).empty()) continue;
      test_kernels<Problem>({&kernel, 1}, problem, {&result}, [&](const std::string&) {
        const Numbers found = product(result, false, v);
        BOOST_TEST((found == expected),
                   std::mismatch(found.begin(), found.end(), expected.begin()).first - found.begin()
                       << " is the first wrong row of " << found.size());
      });
    }
  }
};

/// by·v + addend, which may be empty.
Numbers scaled(Numbers v, double by, const Numbers& addend = {}) {
  for (double& e : v) e *= by;
  for (std::size_t i = 0; i < addend.size(); ++i) v[i] += addend[i];
  return v;
}

template <class T>
void test_forward(Shape s, double scale, Added added = Added::nothing) {
  Exact<T> t(s);
  const Numbers v = t.vector(s.out);
  Impl::LinearForward problem{t.x.ref(), t.weight.ref(), {}, {}, t.y.ref(), {scale}};
  Numbers addend;
  if (added == Added::bias) {
    problem.bias = t.bias.ref();
    const auto bias = t.bias.template read<double>().values();
    addend.assign(static_cast<std::size_t>(s.rows), std::inner_product(v.begin(), v.end(), bias.begin(), 0.0));
  }
  if (added == Added::to_y) {
    problem.residual = t.y.ref();
    addend = product(t.y, false, v);
  }
  t.test(problem, t.y, v, scaled(product(t.x, false, product(t.weight, true, v)), scale, addend));
}

template <class T>
void test_backward_input(Shape s, double scale) {
  Exact<T> t(s);
  const Numbers v = t.vector(s.in);
  t.test(Impl::LinearBackwardInput{t.weight.ref(), t.dy.ref(), t.dx.ref(), {scale}}, t.dx, v,
         scaled(product(t.dy, false, product(t.weight, false, v)), scale));
}

template <class T>
void test_backward_weight(Shape s, double scale) {
  Exact<T> t(s);
  const Numbers v = t.vector(s.in), before = product(t.dweight, false, v);
  t.test(Impl::LinearBackwardWeight{t.x.ref(), t.dy.ref(), t.dweight.ref(), {scale}}, t.dweight, v,
         scaled(product(t.dy, true, product(t.x, false, v)), scale, before));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(linear_large)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_extent_has_several_tiles_or_steps, T, Scalars) {
  for (const Shape s : {Shape{600, 600, 600}, Shape{300, 530, 70}, Shape{70, 300, 1100}}) {
    test_forward<T>(s, -0.5);
    test_backward_input<T>(s, -0.5);
    test_backward_weight<T>(s, -0.5);
  }
}

// Columns are a whole number of vectors: without a scale, the last step of the sum adds what there is to add and stores
// the result.
BOOST_AUTO_TEST_CASE_TEMPLATE(addends_come_with_the_last_of_several_steps, T, Scalars) {
  for (const std::int64_t terms : {96, 608}) {
    for (const Added added : {Added::nothing, Added::bias, Added::to_y})
      test_forward<T>({300, terms, 304}, 1, added);
    test_backward_input<T>({300, 608, terms}, 1);
    test_backward_weight<T>({terms, 608, 304}, 1);
  }
}

// In memory or packed, rows of x and dy are a multiple of 4096 bytes apart.
BOOST_AUTO_TEST_CASE_TEMPLATE(rows_that_share_sets_of_the_caches, T, Scalars) {
  test_forward<T>({300, 2048, 80}, 1);
  test_backward_input<T>({300, 624, 2048}, 1);
}

// Large enough for the large tiles of the SIMD kernels on few threads: two parts of packed rows in a tile, in each of
// two steps of the sum.
BOOST_AUTO_TEST_CASE_TEMPLATE(large_weight_gradients_with_a_long_sum, T, Scalars) {
  test_backward_weight<T>({300, 2304, 2048}, -0.5);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
