// SPDX-License-Identifier: MIT
#include "kformer/ops/swiglu.hpp"

#include "ops/swiglu/reference.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/gradient_check.hpp"
#include "support/large_matrix.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(swiglu)

struct Shape {
  std::int64_t rows, hidden;
};
// Odd columns leave a part of a vector; long rows are cut into stretches.
const std::vector<Shape> shapes{{1, 1},    {3, 5},    {4, 15},    {5, 17}, {7, 33}, {75, 113},
                                {2, 2048}, {2, 4099}, {2, 33001}, {0, 8},  {3, 0}};

template <class T>
struct Tensors {
  TestTensor<Exec, T> gate, up, y, dy, dgate, dup;

  explicit Tensors(Shape s, double scale = 2.0) {
    std::mt19937 generator(20260103);
    auto make = [&] { return TestTensor<Exec, T>({s.rows, s.hidden}); };
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

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const double scale : {2.0, 300.0})
    for (const Shape shape : shapes) {
      Tensors<T> t(shape, scale);
      const auto expected = t.template forward<oracle_t<T>, oracle_t<T>>();
      const auto naive = t.template forward<compute_t<T>, T>();
      test_every_kernel(Impl::SwigluForward{t.gate.ref(), t.up.ref(), t.y.ref()}, {&t.y},
                        [&](const std::string&) { check_close("y", t.y, expected, naive); });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const double scale : {2.0, 300.0})
    for (const Shape shape : shapes) {
      Tensors<T> t(shape, scale);
      const auto expected = t.template backward<oracle_t<T>, oracle_t<T>>();
      const auto naive = t.template backward<compute_t<T>, T>();
      const Impl::SwigluBackward problem{t.gate.ref(), t.up.ref(), t.dy.ref(), t.dgate.ref(), t.dup.ref()};
      test_every_kernel(problem, {&t.dgate, &t.dup}, [&](const std::string&) {
        check_close("dgate", t.dgate, expected.dgate, naive.dgate);
        check_close("dup", t.dup, expected.dup, naive.dup);
      });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gates_of_any_size_give_the_limits, T, Scalars) {
  const double infinity = std::numeric_limits<double>::infinity();
  // In whole vectors, and in a part of one.
  constexpr std::int64_t columns = 5 * 9;
  const auto repeated = [](std::vector<double> values) {
    for (std::int64_t i = 5; i < columns; ++i) values.push_back(values[i - 5]);
    return values;
  };
  const std::vector<double> gates = repeated({0, 1e4, -1e4, infinity, -infinity});
  const std::vector<double> silu = repeated({0, 1e4, 0, infinity, 0}), slope = repeated({0.5, 1, 0, 1, 0});
  const auto row = [] { return TestTensor<Exec, T>({1, columns}); };
  TestTensor<Exec, T> gate = row(), up = row(), dy = row(), y = row(), dgate = row(), dup = row();
  gate.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(gates[i])); });
  for (auto* ones : {&up, &dy}) ones->fill([](std::size_t) { return T(1.0f); });
  const auto stored_gates = gate.template read<double>().values();
  test_every_kernel(Impl::SwigluForward{gate.ref(), up.ref(), y.ref()}, {&y}, [&](const std::string&) {
    const auto got = y.template read<double>().values();
    for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(got[i] == (silu[i] == 0 ? 0 : stored_gates[i]));
  });
  const Impl::SwigluBackward problem{gate.ref(), up.ref(), dy.ref(), dgate.ref(), dup.ref()};
  test_every_kernel(problem, {&dgate, &dup}, [&](const std::string&) {
    BOOST_TEST(dgate.template read<double>().values() == slope);
    const auto got = dup.template read<double>().values();
    for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(got[i] == (silu[i] == 0 ? 0 : stored_gates[i]));
  });
}

// Gates with each mantissa of 11 bits: what is computed before rounding must not be seen after it.
using HalfScalars = std::tuple<bf16, f16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(results_of_16_bits_are_rounded_once, T, HalfScalars) {
  std::vector<T> gates;
  for (int exponent = -30; exponent < 0; ++exponent)
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
      const double error = std::max(0.0, std::abs(got[i] - value) - 3e-7);
      worst = std::max(worst, error / static_cast<double>(ulp(dtype_of<T>, std::abs(value))));
    }
    BOOST_TEST(worst <= 0.505);
    BOOST_TEST(worst > 0.4, "nothing was measured");
  };
  const auto silu = [](double g, double sigmoid) { return g * sigmoid; };
  const auto slope = [](double g, double sigmoid) { return sigmoid * (1 + g * (1 - sigmoid)); };
  test_every_kernel(Impl::SwigluForward{gate.ref(), ones.ref(), y.ref()}, {&y},
                    [&](const std::string&) { check(y, silu); });
  const Impl::SwigluBackward problem{gate.ref(), ones.ref(), ones.ref(), dgate.ref(), dup.ref()};
  test_every_kernel(problem, {&dgate, &dup}, [&](const std::string&) {
    check(dgate, slope);
    check(dup, silu);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_nan_stays_in_its_place, T, Scalars) {
  const Shape shape{2, 37};
  const auto is_odd = [](std::size_t i) { return i % 37 == 3 || i % 37 == 36; };
  using Member = TestTensor<Exec, T> Tensors<T>::*;
  for (const Member operand : {&Tensors<T>::gate, &Tensors<T>::up, &Tensors<T>::dy}) {
    Tensors<T> t(shape);
    const auto values = (t.*operand).template read<compute_t<T>>().values();
    (t.*operand).fill([&](std::size_t i) {
      return T(is_odd(i) ? std::numeric_limits<compute_t<T>>::quiet_NaN() : values[i]);
    });
    const auto nan_where_it_was = [&](const TestTensor<Exec, T>& output, bool reached) {
      const auto got = output.template read<double>().values();
      for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(std::isnan(got[i]) == (reached && is_odd(i)));
    };
    test_every_kernel(Impl::SwigluForward{t.gate.ref(), t.up.ref(), t.y.ref()}, {&t.y},
                      [&](const std::string&) { nan_where_it_was(t.y, operand != &Tensors<T>::dy); });
    const Impl::SwigluBackward backward{t.gate.ref(), t.up.ref(), t.dy.ref(), t.dgate.ref(), t.dup.ref()};
    test_every_kernel(backward, {&t.dgate, &t.dup}, [&](const std::string&) {
      nan_where_it_was(t.dgate, true);
      nan_where_it_was(t.dup, operand != &Tensors<T>::up);
    });
  }
}

// Beyond the caches outputs are written in another way.
BOOST_AUTO_TEST_CASE_TEMPLATE(large_arrays_have_the_bits_of_their_rows, T, Scalars) {
  constexpr std::int64_t rows = 6, row_bytes = 2 << 20;
  const auto gate = large_matrix<T>(rows, row_bytes, 1), up = large_matrix<T>(rows, row_bytes, 2),
             dy = large_matrix<T>(rows, row_bytes, 3);
  const auto outputs = [] {
    return std::array{large_zeros<T>(rows, row_bytes), large_zeros<T>(rows, row_bytes)};
  };
  with_each_kernel(&Impl::SwigluForward::gate, dtype_of<T>, [&] {
    const auto whole = outputs(), by_rows = outputs();
    const auto run = [&](const auto& out, std::int64_t first, std::int64_t end) {
      const auto part = [&](const LargeMatrix<T>& x) { return rows_of(x, first, end); };
      swiglu_forward(Exec(), part(gate), part(up), part(out[0]));
    };
    run(whole, 0, rows);
    for (std::int64_t row = 0; row < rows; ++row) run(by_rows, row, row + 1);
    BOOST_TEST(same_bits(whole[0], by_rows[0]));
  });
  with_each_kernel(&Impl::SwigluBackward::gate, dtype_of<T>, [&] {
    const auto whole = outputs(), by_rows = outputs();
    const auto run = [&](const auto& out, std::int64_t first, std::int64_t end) {
      const auto part = [&](const LargeMatrix<T>& x) { return rows_of(x, first, end); };
      swiglu_backward(Exec(), part(gate), part(up), part(dy), part(out[0]), part(out[1]));
    };
    run(whole, 0, rows);
    for (std::int64_t row = 0; row < rows; ++row) run(by_rows, row, row + 1);
    for (int i = 0; i < 2; ++i) BOOST_TEST(same_bits(whole[i], by_rows[i]));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(outputs_may_be_inputs, T, Scalars) {
  const Shape shape{3, 70};
  const Tensors<T> apart(shape);
  auto bits_of = [](const TestTensor<Exec, T>& t) {
    Exec().fence("kformer::Testing::swiglu");
    return t.bits();
  };
  auto v = [](const TestTensor<Exec, T>& t) { return t.template view<2>(); };
  swiglu_forward(Exec(), v(apart.gate), v(apart.up), v(apart.y));
  swiglu_backward(Exec(), v(apart.gate), v(apart.up), v(apart.dy), v(apart.dgate), v(apart.dup));
  using Member = TestTensor<Exec, T> Tensors<T>::*;
  for (const Member output : {&Tensors<T>::gate, &Tensors<T>::up}) {
    const Tensors<T> t(shape);
    swiglu_forward(Exec(), v(t.gate), v(t.up), v(t.*output));
    BOOST_TEST((bits_of(t.*output) == bits_of(apart.y)));
  }
  const std::vector<Member> inputs{&Tensors<T>::gate, &Tensors<T>::up, &Tensors<T>::dy};
  for (const Member dgate : inputs)
    for (const Member dup : inputs) {
      if (dgate == dup) continue;
      const Tensors<T> t(shape);
      swiglu_backward(Exec(), v(t.gate), v(t.up), v(t.dy), v(t.*dgate), v(t.*dup));
      BOOST_TEST((bits_of(t.*dgate) == bits_of(apart.dgate)));
      BOOST_TEST((bits_of(t.*dup) == bits_of(apart.dup)));
    }
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  HostTensor<double> gate({1, 2}), up({1, 2}, 3.0), dy({1, 2}, 5.0);
  gate(0, 0) = 0;
  gate(0, 1) = std::log(3.0);  // σ = 3/4
  const auto y = ref::swiglu_forward<double, double>(gate, up);
  BOOST_TEST(y(0, 0) == 0);
  BOOST_TEST(y(0, 1) == 2.25 * std::log(3.0), boost::test_tools::tolerance(1e-15));
  const auto r = ref::swiglu_backward<double, double>(gate, up, dy);
  BOOST_TEST(r.dgate(0, 0) == 7.5);
  BOOST_TEST(r.dgate(0, 1) == 15 * 0.75 * (1 + 0.25 * std::log(3.0)), boost::test_tools::tolerance(1e-15));
  BOOST_TEST(r.dup(0, 0) == 0);
  BOOST_TEST(r.dup(0, 1) == 3.75 * std::log(3.0), boost::test_tools::tolerance(1e-15));
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  Tensors<double> t({3, 7});
  std::mt19937 generator(7);
  const auto towards_gate = TestTensor<Exec, double>({3, 7}).random(generator).read<double>().values();
  const auto towards_up = TestTensor<Exec, double>({3, 7}).random(generator).read<double>().values();
  const auto gate = t.gate.read<double>().values(), up = t.up.read<double>().values();
  const auto dy = t.dy.read<double>().values();
  auto loss = [&](double h) {
    TestTensor<Exec, double> moved_gate({3, 7}), moved_up({3, 7});
    moved_gate.fill([&](std::size_t i) { return gate[i] + h * towards_gate[i]; });
    moved_up.fill([&](std::size_t i) { return up[i] + h * towards_up[i]; });
    swiglu_forward(Exec(), moved_gate.view<2>(), moved_up.view<2>(), t.y.view<2>());
    Exec().fence("kformer::Testing::swiglu");
    return dot(t.y.read<double>().values(), dy);
  };
  swiglu_backward(Exec(), t.gate.view<2>(), t.up.view<2>(), t.dy.view<2>(), t.dgate.view<2>(), t.dup.view<2>());
  Exec().fence("kformer::Testing::swiglu");
  const double analytic =
      dot(t.dgate.read<double>().values(), towards_gate) + dot(t.dup.read<double>().values(), towards_up);
  check_gradient("gate, up", loss, analytic);
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  TestTensor<Exec, float> x({3, 5}), narrow({3, 4});
  TestTensor<Exec, f16> half({3, 5});
  check_error<DimensionMismatch>(
      [&] { swiglu_forward(Exec(), x.view<2>(), narrow.view<2>(), x.view<2>()); },
      "kformer::swiglu_forward: extents do not match: gate[3,5] up[3,4] y[3,5]; expected up "
      "and y to have the extents of gate");
  check_error<DimensionMismatch>(
      [&] { swiglu_forward(Exec(), x.view<2>(), x.view<2>(), half.view<2>()); },
      "kformer::swiglu_forward: y is stored as f16, expected f32: gate[3,5] up[3,5] y[3,5]");
  check_error<DimensionMismatch>(
      [&] { swiglu_backward(Exec(), x.view<2>(), x.view<2>(), x.view<2>(), x.view<2>(), narrow.view<2>()); },
      "kformer::swiglu_backward: extents do not match: gate[3,5] up[3,5] dy[3,5] dgate[3,5] dup[3,4]; expected "
      "up, "
      "dy, dgate and dup to have the extents of gate");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
