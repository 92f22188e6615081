// SPDX-License-Identifier: MIT
// Products of several tiles and several steps of the sum, too large for the references: factors are −1, 0 and 1, so
// that every product, every sum and its storage in 16 bits is exact, in any order of summation.
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
  static constexpr double scale = -0.5;
  std::mt19937 generator{20261122};
  TestTensor<Exec, T> x, weight, dy, y, dx;
  TestTensor<Exec, compute_t<T>> dweight;

  explicit Exact(Shape s)
      : x({s.rows, s.in}),
        weight({s.out, s.in}),
        dy({s.rows, s.out}),
        y({s.rows, s.out}),
        dx({s.rows, s.in}),
        dweight({s.out, s.in}) {
    std::uniform_int_distribution<int> sign(-1, 1);
    for (TestTensor<Exec, T>* factor : {&x, &weight, &dy})
      factor->fill([&](std::size_t) { return sign(generator); });
    dweight.fill([](std::size_t i) { return static_cast<int>(i % 5); });
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

Numbers scaled(Numbers v, double by) {
  for (double& e : v) e *= by;
  return v;
}

template <class T>
void test_forward(Shape s) {
  Exact<T> t(s);
  const Numbers v = t.vector(s.out);
  t.test(Impl::LinearForward{t.x.ref(), t.weight.ref(), {}, {}, t.y.ref(), {t.scale}}, t.y, v,
         scaled(product(t.x, false, product(t.weight, true, v)), t.scale));
}

template <class T>
void test_backward_input(Shape s) {
  Exact<T> t(s);
  const Numbers v = t.vector(s.in);
  t.test(Impl::LinearBackwardInput{t.weight.ref(), t.dy.ref(), t.dx.ref(), {t.scale}}, t.dx, v,
         scaled(product(t.dy, false, product(t.weight, false, v)), t.scale));
}

template <class T>
void test_backward_weight(Shape s) {
  Exact<T> t(s);
  const Numbers v = t.vector(s.in), before = product(t.dweight, false, v);
  Numbers expected = scaled(product(t.dy, true, product(t.x, false, v)), t.scale);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
  t.test(Impl::LinearBackwardWeight{t.x.ref(), t.dy.ref(), t.dweight.ref(), {t.scale}}, t.dweight, v, expected);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(linear_large)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_extent_has_several_tiles_or_steps, T, Scalars) {
  for (const Shape s : {Shape{600, 600, 600}, Shape{300, 530, 70}, Shape{70, 300, 1100}}) {
    test_forward<T>(s);
    test_backward_input<T>(s);
    test_backward_weight<T>(s);
  }
}

// Large enough for the large tiles of the SIMD kernels on few threads: two parts of packed rows in a tile, in each of
// two steps of the sum.
BOOST_AUTO_TEST_CASE_TEMPLATE(large_weight_gradients_with_a_long_sum, T, Scalars) {
  test_backward_weight<T>({300, 2304, 2048});
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
