// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/swiglu.hpp"
#include "ops/swiglu/reference.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Problems of SwiGLU for tests, with their checks. `test(problem, outputs, verify)` runs the kernels
/// in question, as `test_every_kernel` does.

namespace kformer::Testing::swiglu_cases {
namespace ref = kformer::Impl::reference;

constexpr unsigned usual_seed = 20260103;

template <class T>
struct Tensors {
  TestTensor<Exec, T> gate, up, y, dy, dgate, dup;

  explicit Tensors(RowShape s, double scale = 2.0, Rows rows = Rows::strided, unsigned seed = usual_seed) {
    std::mt19937 generator(seed);
    auto make = [&] { return TestTensor<Exec, T>({s.rows, s.hidden}, rows); };
    gate = make().random(generator, scale);
    up = make().random(generator);
    dy = make().random(generator);
    y = make();
    dgate = make();
    dup = make();
  }

  template <class Real, class Store>
  auto forward() const {
    return ref::swiglu_forward<Real, Store>(gate.template read<Real>(), up.template read<Real>());
  }
  template <class Real, class Store>
  auto backward() const {
    return ref::swiglu_backward<Real, Store>(gate.template read<Real>(), up.template read<Real>(),
                                             dy.template read<Real>());
  }
};

template <class T, class Test>
void test_forward(RowShape shape, double scale, Rows rows, Test test, unsigned seed = usual_seed) {
  Tensors<T> t(shape, scale, rows, seed);
  const auto naive = t.template forward<naive_t<T>, T>();
  test(Impl::SwigluForward{t.gate.ref(), t.up.ref(), t.y.ref()}, std::vector<Output*>{&t.y},
       [&](const std::string&) { check_close("y", t.y, naive); });
}

template <class T, class Test>
void test_backward(RowShape shape, double scale, Rows rows, Test test, unsigned seed = usual_seed) {
  Tensors<T> t(shape, scale, rows, seed);
  const auto naive = t.template backward<naive_t<T>, T>();
  const Impl::SwigluBackward problem{t.gate.ref(), t.up.ref(), t.dy.ref(), t.dgate.ref(), t.dup.ref()};
  test(problem, std::vector<Output*>{&t.dgate, &t.dup}, [&](const std::string&) {
    check_close("dgate", t.dgate, naive.dgate);
    check_close("dup", t.dup, naive.dup);
  });
}

template <class T, class Test>
void test_limits(std::int64_t columns, Test test) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto repeated = [columns](std::vector<double> values) {
    for (std::int64_t i = 5; i < columns; ++i) values.push_back(values[i - 5]);
    return values;
  };
  const std::vector<double> gates = repeated({0, 1e4, -1e4, infinity, -infinity});
  const std::vector<double> silu = repeated({0, 1e4, 0, infinity, 0}), slope = repeated({0.5, 1, 0, 1, 0});
  const auto row = [columns] { return TestTensor<Exec, T>({1, columns}); };
  TestTensor<Exec, T> gate = row(), up = row(), dy = row(), y = row(), dgate = row(), dup = row();
  gate.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(gates[i])); });
  for (auto* ones : {&up, &dy}) ones->fill([](std::size_t) { return T(1.0f); });
  const auto stored_gates = gate.template read<double>().values();
  test(Impl::SwigluForward{gate.ref(), up.ref(), y.ref()}, std::vector<Output*>{&y}, [&](const std::string&) {
    const auto got = y.template read<double>().values();
    for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(got[i] == (silu[i] == 0 ? 0 : stored_gates[i]));
  });
  const Impl::SwigluBackward problem{gate.ref(), up.ref(), dy.ref(), dgate.ref(), dup.ref()};
  test(problem, std::vector<Output*>{&dgate, &dup}, [&](const std::string&) {
    BOOST_TEST(dgate.template read<double>().values() == slope);
    const auto got = dup.template read<double>().values();
    for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(got[i] == (silu[i] == 0 ? 0 : stored_gates[i]));
  });
}

// Gates with each mantissa of 11 bits, of `exponents` exponents up to 1024: the value before rounding
// must not be seen after it.
template <class T, class Test>
void test_rounding(int exponents, Test test) {
  std::vector<T> gates;
  for (int exponent = -exponents; exponent < 0; ++exponent)
    for (int mantissa = 1024; mantissa < 2048; ++mantissa)
      for (const int sign : {-1, 1})
        gates.push_back(T(static_cast<compute_t<T>>(std::ldexp(sign * mantissa, exponent))));
  const auto row = [&] { return TestTensor<Exec, T>({1, static_cast<std::int64_t>(gates.size())}); };
  TestTensor<Exec, T> gate = row(), ones = row(), y = row(), dgate = row(), dup = row();
  gate.fill([&](std::size_t i) { return gates[i]; });
  ones.fill([](std::size_t) { return T(1.0f); });
  // In units of the last place, but where a function crosses 0 also what float arithmetic leaves over.
  const auto check = [&](const TestTensor<Exec, T>& output, auto exact) {
    const auto got = output.template read<double>().values();
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double g = static_cast<float>(gates[i]), value = exact(g, 1 / (1 + std::exp(-g)));
      const auto error = static_cast<double>(difference(got[i], value));
      worst = std::max(worst, (error - 3e-7) / static_cast<double>(ulp(dtype_of<T>, std::abs(value))));
    }
    BOOST_TEST(worst <= 0.505);
    BOOST_TEST(worst > 0.4, "nothing was measured");
  };
  const auto silu = [](double g, double sigmoid) { return g * sigmoid; };
  const auto slope = [](double g, double sigmoid) { return sigmoid * (1 + g * (1 - sigmoid)); };
  test(Impl::SwigluForward{gate.ref(), ones.ref(), y.ref()}, std::vector<Output*>{&y},
       [&](const std::string&) { check(y, silu); });
  const Impl::SwigluBackward problem{gate.ref(), ones.ref(), ones.ref(), dgate.ref(), dup.ref()};
  test(problem, std::vector<Output*>{&dgate, &dup}, [&](const std::string&) {
    check(dgate, slope);
    check(dup, silu);
  });
}

template <class T, class Test>
void test_nan(std::int64_t hidden, Rows rows, Test test) {
  const RowShape shape{2, hidden};
  const auto is_odd = [n = static_cast<std::size_t>(hidden)](std::size_t i) {
    return i % n == 3 || i % n == n - 1;
  };
  using Member = TestTensor<Exec, T> Tensors<T>::*;
  for (const Member operand : {&Tensors<T>::gate, &Tensors<T>::up, &Tensors<T>::dy}) {
    Tensors<T> t(shape, 2.0, rows);
    const auto values = (t.*operand).template read<compute_t<T>>().values();
    (t.*operand).fill([&](std::size_t i) {
      return T(is_odd(i) ? std::numeric_limits<compute_t<T>>::quiet_NaN() : values[i]);
    });
    const auto nan_where_it_was = [&](const TestTensor<Exec, T>& output, bool reached) {
      const auto got = output.template read<double>().values();
      for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(std::isnan(got[i]) == (reached && is_odd(i)));
    };
    test(Impl::SwigluForward{t.gate.ref(), t.up.ref(), t.y.ref()}, std::vector<Output*>{&t.y},
         [&](const std::string&) { nan_where_it_was(t.y, operand != &Tensors<T>::dy); });
    const Impl::SwigluBackward backward{t.gate.ref(), t.up.ref(), t.dy.ref(), t.dgate.ref(), t.dup.ref()};
    test(backward, std::vector<Output*>{&t.dgate, &t.dup}, [&](const std::string&) {
      nan_where_it_was(t.dgate, true);
      nan_where_it_was(t.dup, operand != &Tensors<T>::up);
    });
  }
}

}  // namespace kformer::Testing::swiglu_cases
