// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/linear.hpp"
#include "support/every_kernel.hpp"
#include "support/read_operand.hpp"
#include "support/references.hpp"

/// \file
/// Products with weights for tests, with their checks. `test(problem, outputs, verify)` runs the kernels in
/// question, as `test_every_kernel` does.

namespace kformer::Testing::linear_cases {
namespace ref = kformer::Impl::reference;

struct Shape {
  std::int64_t rows, in, out, batch = -1;  ///< without a batch the operands are matrices
};

enum class Added { nothing, bias, residual, to_y };
constexpr Added every_added[] = {Added::nothing, Added::bias, Added::residual, Added::to_y};

/// Whether a product of so many terms is tested in this form: those whose references take longest in one layout of rows each.
constexpr bool belongs_to(Rows rows, Added added, std::int64_t terms) {
  const bool of_packed = added == Added::bias || added == Added::to_y;
  return terms < 1'000'000 || (rows == Rows::packed) == of_packed;
}

/// The gradient added to what the output had.
template <class Real, class S>
HostTensor<Real> sum_of(HostTensor<Real> gradient, const TestTensor<Exec, S>& initial) {
  const auto start = initial.template read<Real>();
  for (std::size_t i = 0; i < start.values().size(); ++i) gradient.values()[i] += start.values()[i];
  return gradient;
}

template <class T>
struct Tensors {
  TestTensor<Exec, T> x, weight, bias, residual, y, dy, dx;
  TestTensor<Exec, compute_t<T>> dweight, dbias;

  Tensors(Shape s, Rows rows, Rows residual_rows, unsigned seed) {
    std::mt19937 generator(seed);
    const auto tensor = [&]<class S = T>(std::int64_t r, std::int64_t c, Rows stored) {
      return s.batch < 0 ? TestTensor<Exec, S>({r, c}, stored) : TestTensor<Exec, S>({s.batch, r, c}, stored);
    };
    x = tensor(s.rows, s.in, rows).random(generator);
    weight = tensor(s.out, s.in, rows).random(generator, 0.5);
    bias = TestTensor<Exec, T>({s.out}).random(generator, 3.0);
    residual = tensor(s.rows, s.out, residual_rows).random(generator, 3.0);
    y = tensor(s.rows, s.out, rows);
    dy = tensor(s.rows, s.out, rows).random(generator);
    dx = tensor(s.rows, s.in, rows);
    dweight = tensor.template operator()<compute_t<T>>(s.out, s.in, rows).random(generator);
    dbias = TestTensor<Exec, compute_t<T>>({s.out}).random(generator);
  }
  explicit Tensors(Shape s, Rows rows = Rows::strided, unsigned seed = 20260103)
      : Tensors(s, rows, rows, seed) {}

  /// With what dweight had.
  template <class Real>
  HostTensor<Real> backward_weight(double scale) const {
    return sum_of(ref::linear_backward_weight(x.template read<Real>(), dy.template read<Real>(), Real(scale)),
                  dweight);
  }
};

template <class T, class Test>
void test_forward(Tensors<T> t, Added added, double scale, Test test) {
  std::mt19937 generator(11);
  if (added == Added::to_y) t.y.random(generator, 3.0);
  Impl::LinearForward problem{t.x.ref(), t.weight.ref(), {}, {}, t.y.ref(), {scale}};
  if (added == Added::bias) problem.bias = t.bias.ref();
  if (added == Added::residual) problem.residual = t.residual.ref();
  if (added == Added::to_y) problem.residual = t.y.ref();
  const auto forward = [&]<class Real, class Store>() {
    return ref::linear_forward<Real, Store>(read_operand<Real>(problem.x), read_operand<Real>(problem.weight),
                                            read_operand<Real>(problem.bias),
                                            read_operand<Real>(problem.residual), Real(scale));
  };
  const auto naive = forward.template operator()<naive_t<T>, T>();
  problem.check();
  test(problem, std::vector<Output*>{&t.y}, [&](const std::string&) { check_close("y", t.y, naive); });
}

template <class T, class Test>
void test_backward_input(Tensors<T> t, double scale, Test test) {
  const auto gradient = [&]<class Real, class Store>() {
    return ref::linear_backward_input<Real, Store>(t.weight.template read<Real>(), t.dy.template read<Real>(),
                                                   Real(scale));
  };
  const auto naive = gradient.template operator()<naive_t<T>, T>();
  const Impl::LinearBackwardInput problem{t.weight.ref(), t.dy.ref(), t.dx.ref(), {scale}};
  problem.check();
  test(problem, std::vector<Output*>{&t.dx}, [&](const std::string&) { check_close("dx", t.dx, naive); });
}

template <class T, class Test>
void test_backward_weight(Tensors<T> t, double scale, Test test) {
  const auto naive = t.template backward_weight<naive_t<T>>(scale);
  const Impl::LinearBackwardWeight problem{t.x.ref(), t.dy.ref(), t.dweight.ref(), {scale}};
  problem.check();
  test(problem, std::vector<Output*>{&t.dweight},
       [&](const std::string&) { check_close("dweight", t.dweight, naive); });
}

}  // namespace kformer::Testing::linear_cases
