// SPDX-License-Identifier: MIT
#include "kformer/ops/swiglu.hpp"

#include "ops/swiglu_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/large_matrix.hpp"

namespace kformer::Testing {
using namespace swiglu_cases;

BOOST_AUTO_TEST_SUITE(swiglu)

// Odd columns leave a part of a vector; long rows are cut into stretches.
const std::vector<RowShape> shapes{{1, 1},    {3, 5},    {4, 15},    {5, 17}, {7, 33}, {75, 113},
                                   {2, 2048}, {2, 4099}, {2, 33001}, {0, 8},  {3, 0}};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const double scale : {2.0, 300.0})
    for (const RowShape shape : shapes) test_forward<T>(shape, scale, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const double scale : {2.0, 300.0})
    for (const RowShape shape : shapes) test_backward<T>(shape, scale, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const RowShape shape{draw.any(1, 20), draw.any(1, 150)};
    const double scale = draw.one_in(4) ? 300 : draw.spread();
    test_forward<T>(shape, scale, draw.rows(), every_kernel, draw.seed());
    test_backward<T>(shape, scale, draw.rows(), every_kernel, draw.seed());
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gates_of_any_size_give_the_limits, T, Scalars) {
  test_limits<T>(5 * 9, every_kernel);  // in whole vectors, and in a part of one
}

BOOST_AUTO_TEST_CASE_TEMPLATE(results_of_16_bits_are_rounded_once, T, Halves) {
  test_rounding<T>(30, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_nan_stays_in_its_place, T, Scalars) {
  test_nan<T>(37, Rows::strided, every_kernel);
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
  const RowShape shape{3, 70};
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
      [&] { Impl::SwigluForward{x.ref(), x.ref(), half.ref()}.check(); },
      "kformer::swiglu_forward: y is stored as f16, expected f32: gate[3,5] up[3,5] y[3,5]");
  check_error<DimensionMismatch>(
      [&] { swiglu_backward(Exec(), x.view<2>(), x.view<2>(), x.view<2>(), x.view<2>(), narrow.view<2>()); },
      "kformer::swiglu_backward: extents do not match: gate[3,5] up[3,5] dy[3,5] dgate[3,5] dup[3,4]; expected "
      "up, "
      "dy, dgate and dup to have the extents of gate");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
