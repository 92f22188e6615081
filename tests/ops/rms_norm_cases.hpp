// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/rms_norm.hpp"
#include "ops/rms_norm/reference.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Problems of RMSNorm for tests, with their checks. `test(problem, outputs, verify)` runs the kernels
/// in question, as `test_every_kernel` does.

namespace kformer::Testing::rms_norm_cases {
namespace ref = kformer::Impl::reference;

constexpr unsigned usual_seed = 20260101;

template <class T>
struct Tensors {
  TestTensor<Exec, T> x, residual, weight, sum, y, dy, dsum, dx;
  TestTensor<Exec, compute_t<T>> rstd, dweight;

  Tensors(RowShape s, bool fused, Rows rows_lie = Rows::strided, unsigned seed = usual_seed) {
    std::mt19937 generator(seed);
    auto rows = [&] { return TestTensor<Exec, T>({s.rows, s.hidden}, rows_lie); };
    x = rows().random(generator);
    if (fused) {
      residual = rows().random(generator, 3.0);
      sum = rows();
      dsum = rows().random(generator);
    }
    weight = TestTensor<Exec, T>({s.hidden}).random(generator, 0.3, 1.0);
    dy = rows().random(generator);
    y = rows();
    dx = rows();
    rstd = TestTensor<Exec, compute_t<T>>({s.rows});
    dweight = TestTensor<Exec, compute_t<T>>({s.hidden}).random(generator);
  }

  template <class Real, class Store>
  auto forward() const {
    return ref::rms_norm_forward<Real, Store>(x.template read<Real>(), residual.template read<Real>(),
                                              weight.template read<Real>(), eps);
  }
  Impl::RmsNormForward forward_problem(double epsilon = eps) const {
    return {x.ref(), residual.ref(), weight.ref(), sum.ref(), y.ref(), rstd.ref(), epsilon};
  }
  Impl::RmsNormBackward backward_problem() const {
    return {x.ref(), weight.ref(), rstd.ref(), dy.ref(), dsum.ref(), dx.ref(), dweight.ref()};
  }
  std::vector<Output*> forward_outputs() {
    std::vector<Output*> outputs{&y, &rstd};
    if (sum.ref().present()) outputs.push_back(&sum);
    return outputs;
  }
  static constexpr double eps = 1e-5;
};

template <class T, class Test>
void test_forward(RowShape shape, bool fused, Rows rows, Test test, unsigned seed = usual_seed) {
  Tensors<T> t(shape, fused, rows, seed);
  const auto naive = t.template forward<naive_t<T>, T>();
  test(t.forward_problem(), t.forward_outputs(), [&](const std::string&) {
    check_close("y", t.y, naive.y);
    check_close("rstd", t.rstd, naive.rstd);
    if (fused) check_close("sum", t.sum, naive.sum);
  });
}

// 1 + 1/256 is a tie in bf16 and 1 + 1.5/512 below it: all sums are stored as 1, of which the norm is 1.
template <class Test>
void test_norm_of_the_stored_sum(std::int64_t hidden, Test test) {
  Tensors<bf16> t({1, hidden}, true);
  t.x.fill([](std::size_t) { return 1.0f; });
  t.residual.fill([](std::size_t i) { return i % 2 == 0 ? 1.5f / 512 : 1.0f / 256; });
  test(t.forward_problem(0), t.forward_outputs(), [&](const std::string& kernel) {
    BOOST_TEST(t.sum.template read<double>().values() == std::vector<double>(hidden, 1),
               boost::test_tools::per_element());
    BOOST_TEST(t.rstd.template read<double>().values()[0] == 1, kernel);
  });
}

template <class T, class Test>
void test_backward(RowShape shape, bool fused, Rows rows, Test test, unsigned seed = usual_seed) {
  Tensors<T> t(shape, fused, rows, seed);
  const auto saved = t.template forward<oracle_t<T>, oracle_t<T>>();
  t.rstd.fill([&](std::size_t i) { return static_cast<compute_t<T>>(saved.rstd.values()[i]); });
  const auto initial = t.dweight.template read<oracle_t<T>>();
  auto gradients = [&]<class Real, class Store>() {
    auto g = ref::rms_norm_backward<Real, Store>(t.x.template read<Real>(), t.weight.template read<Real>(),
                                                 t.rstd.template read<Real>(), t.dy.template read<Real>(),
                                                 t.dsum.template read<Real>());
    for (std::size_t i = 0; i < initial.values().size(); ++i)
      g.dweight.values()[i] += Real(initial.values()[i]);
    return g;
  };
  const auto naive = gradients.template operator()<naive_t<T>, T>();
  test(t.backward_problem(), std::vector<Output*>{&t.dx, &t.dweight}, [&](const std::string&) {
    check_close("dx", t.dx, naive.dx);
    check_close("dweight", t.dweight, naive.dweight);
  });
  // The weight may be frozen.
  Impl::RmsNormBackward frozen = t.backward_problem();
  frozen.dweight.extent[0] = 0;
  frozen.dweight.data = nullptr;
  frozen.check();
  test(frozen, std::vector<Output*>{&t.dx}, [&](const std::string&) { check_close("dx", t.dx, naive.dx); });
}

/// Rows times 2^exponent, whose squares leave the range of the type of arithmetic.
template <class T, class Test>
void test_magnitude(RowShape shape, int exponent, bool fused, Rows rows, Test test) {
  using Real = oracle_t<T>;
  Tensors<T> t(shape, fused, rows);
  // The textbook has no trouble with the unscaled rows, and a power of two changes no rounding.
  const auto naive = ref::rms_norm_forward<naive_t<T>, T>(t.x.template read<naive_t<T>>(),
                                                          t.residual.template read<naive_t<T>>(),
                                                          t.weight.template read<naive_t<T>>(), 0);
  const auto scaled = [&](const HostTensor<double>& values) {
    return [&values, exponent](std::size_t i) {
      return T(static_cast<compute_t<T>>(std::ldexp(values.values()[i], exponent)));
    };
  };
  t.x.fill(scaled(t.x.template read<double>()));
  if (fused) t.residual.fill(scaled(t.residual.template read<double>()));
  const auto expected = ref::rms_norm_forward<Real, Real>(
      t.x.template read<Real>(), t.residual.template read<Real>(), t.weight.template read<Real>(), 0);
  auto naive_rstd = naive.rstd;
  for (auto& value : naive_rstd.values()) value = ldexp(value, -exponent);
  test(t.forward_problem(0), t.forward_outputs(), [&](const std::string& name) {
    if (name == "reference" && std::is_same_v<T, double>) return;  // its arithmetic is double as well
    check_close("y", t.y, expected.y, naive.y);
    check_close("rstd", t.rstd, expected.rstd, naive_rstd);
  });

  // Backward takes what forward saved, and has gradients of the unscaled rows times 2^−exponent.
  t.rstd.fill([&](std::size_t i) { return static_cast<compute_t<T>>(expected.rstd.values()[i]); });
  const auto gradients = [&]<class R, class Store>() {
    return ref::rms_norm_backward<R, Store>(t.x.template read<R>(), t.weight.template read<R>(),
                                            t.rstd.template read<R>(), t.dy.template read<R>(), {});
  };
  const auto dexpected = gradients.template operator()<Real, Real>();
  const auto dnaive = gradients.template operator()<naive_t<T>, T>();
  t.dweight.fill([](std::size_t) { return 0; });
  Impl::RmsNormBackward backward = t.backward_problem();
  backward.dsum = {};
  test(backward, std::vector<Output*>{&t.dx, &t.dweight}, [&](const std::string&) {
    check_close("dx", t.dx, dexpected.dx, dnaive.dx);
    check_close("dweight", t.dweight, dexpected.dweight, dnaive.dweight);
  });
}

/// Rows whose squares are too large for the type of arithmetic, with an eps as large as their mean square.
template <class T, class Test>
void test_large_eps(RowShape shape, Rows rows, Test test) {
  constexpr int exponent = std::is_same_v<T, double> ? 512 : 64;
  Tensors<T> t(shape, false, rows);
  auto unscaled = ref::rms_norm_forward<naive_t<T>, T>(t.x.template read<naive_t<T>>(), {},
                                                       t.weight.template read<naive_t<T>>(), 0.25);
  for (auto& value : unscaled.rstd.values()) value = ldexp(value, -exponent);
  const auto values = t.x.template read<double>();
  t.x.fill(
      [&](std::size_t i) { return T(static_cast<compute_t<T>>(std::ldexp(values.values()[i], exponent))); });
  test(t.forward_problem(std::ldexp(0.25, 2 * exponent)), t.forward_outputs(), [&](const std::string& name) {
    if (name == "reference" && std::is_same_v<T, double>) return;  // its arithmetic is double as well
    check_close("y", t.y, unscaled.y);
    check_close("rstd", t.rstd, unscaled.rstd);
  });
}

template <class T, class Test>
void test_rows_without_a_norm(std::int64_t hidden, Rows rows, Test test) {
  using C = compute_t<T>;
  const C infinity = std::numeric_limits<C>::infinity(), nan = std::numeric_limits<C>::quiet_NaN();
  TestTensor<Exec, T> x({4, hidden}, rows), weight({hidden}), y({4, hidden}, rows);
  TestTensor<Exec, C> rstd({4});
  const C odd[] = {infinity, nan, 0, -infinity};
  const std::int64_t place = hidden - 2;
  x.fill([&](std::size_t index) {
    const auto i = static_cast<std::int64_t>(index);
    return T(i / hidden == 2 ? C(0) : i % hidden == place ? odd[i / hidden] : C(1));
  });
  weight.fill([](std::size_t) { return T(C(1)); });
  const Impl::RmsNormForward problem{x.ref(), {}, weight.ref(), {}, y.ref(), rstd.ref(), 0};
  test(problem, std::vector<Output*>{&y, &rstd}, [&](const std::string&) {
    const auto scale = rstd.template read<double>();
    const auto out = y.template read<double>();
    BOOST_TEST(scale(0) == 0);
    BOOST_TEST(std::isnan(scale(1)));
    BOOST_TEST(scale(2) == std::numeric_limits<double>::infinity());
    BOOST_TEST(scale(3) == 0);
    for (std::int64_t h = 0; h < hidden; ++h) {
      for (const int row : {0, 3}) BOOST_TEST((h == place ? std::isnan(out(row, h)) : out(row, h) == 0));
      for (const int row : {1, 2}) BOOST_TEST(std::isnan(out(row, h)));
    }
  });
}

}  // namespace kformer::Testing::rms_norm_cases
