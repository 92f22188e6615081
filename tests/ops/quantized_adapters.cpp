// SPDX-License-Identifier: MIT
#include "ops/quantized_products.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;
using namespace quantized_products;

// The terms of an adapter in products with quantised weights: layers with frozen weights use them.
BOOST_AUTO_TEST_SUITE(quantized_adapters)

using Shape = AdapterShape;
// Few rows and many, several tiles and steps along both sums, and nothing at all.
const std::vector<Shape> shapes{{1, 64, 49, 1},    {8, 100, 7, 5},   {33, 257, 70, 16}, {70, 300, 130, 300},
                                {70, 300, 96, 20}, {9, 32, 260, 20}, {3, 70, 9, 0},     {0, 32, 3, 2},
                                {4, 0, 3, 2},      {4, 32, 0, 2}};

template <class T>
void check_forward(QuantizedFormat format, Shape s, bool residual, unsigned seed) {
  test_adapter<T>(format, s, residual, residual ? Rows::packed : Rows::strided, seed, every_kernel);
}

template <class T>
void check_backward(QuantizedFormat format, Shape s, bool more, unsigned seed) {
  using Real = naive_t<T>;
  std::mt19937 generator(seed);
  const auto tensor = [&](std::int64_t r, std::int64_t c) {
    return TestTensor<Exec, T>({r, c}, more ? Rows::packed : Rows::strided).random(generator);
  };
  const auto dy = tensor(s.rows, s.out), dxa = tensor(s.rows, s.rank), a = tensor(s.rank, s.in);
  const auto weight = QuantizedWeights(format, s.out, s.in).random(generator);
  TestTensor<Exec, T> dx({s.rows, s.in});
  if (more) dx.random(generator);
  const double scale = more ? 1 : -0.75;
  const Impl::QuantizedLinearBackwardInput problem{
      weight.matrix(), dy.ref(), dx.ref(), {scale}, {dxa.ref(), a.ref()}, more ? dx.ref() : TensorRef{}};
  problem.check();
  const auto naive = expected_sum<Real, T>(dy.template read<Real>(), ref::dequantize<Real, T>(weight.matrix()),
                                           dxa.template read<Real>(), a.template read<Real>(), false,
                                           read_operand<Real>(problem.addend), scale);
  BOOST_TEST_CONTEXT(to_string(format) << " of " << s.rows << " rows")
  test_every_kernel(problem, {&dx}, [&](const std::string&) { check_close("dx", dx, naive); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_adds_the_terms, T, Scalars) {
  unsigned seed = 20261201;
  for (const QuantizedFormat format : quantized_formats)
    for (const Shape s : shapes)
      for (const bool residual : {false, true}) check_forward<T>(format, s, residual, seed++);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_adds_the_terms_and_what_was_there, T, Scalars) {
  unsigned seed = 20261202;
  for (const QuantizedFormat format : quantized_formats)
    for (const Shape s : shapes)
      for (const bool more : {false, true}) check_backward<T>(format, s, more, seed++);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const Shape shape{draw.any(1, 40), draw.any(1, draw.one_in(4) ? 600 : 100), draw.any(1, 60),
                      draw.any(1, 20)};
    check_forward<T>(draw.one_of(quantized_formats), shape, draw.one_in(2), draw.seed());
    check_backward<T>(draw.one_of(quantized_formats), shape, draw.one_in(2), draw.seed());
  });
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  const TestTensor<Exec, float> x({3, 64}), y({3, 7}), xa({3, 2}), b({7, 2}), a({2, 64}), wide({7, 3});
  const TestTensor<Exec, bf16> other({7, 2});
  const QuantizedWeights weight(QuantizedFormat::q8_0, 7, 64);
  const auto forward = [&](const TensorRef& right, Activations activations) {
    Impl::QuantizedLinearForward{x.ref(), weight.matrix(), {}, y.ref(), {activations}, {xa.ref(), right}}
        .check();
  };
  check_error<DimensionMismatch>(
      [&] { forward(wide.ref(), Activations::full); },
      "kformer::quantized_linear_forward: extents do not match: x[3,64] weight[7,64] "
      "xa[3,2] b[7,3] y[3,7]; expected xa to have the rows of x and b those of weight, "
      "with equal columns");
  check_error<DimensionMismatch>(
      [&] { forward(other.ref(), Activations::full); },
      "kformer::quantized_linear_forward: b is stored as bf16, expected f32: x[3,64] "
      "weight[7,64] xa[3,2] b[7,2] y[3,7]");
  check_error<NotSupported>([&] { forward(b.ref(), Activations::int8); },
                            "kformer::quantized_linear_forward: an adapter needs activations as they are; use "
                            "Activations::full");
  const auto backward = [&](const TensorRef& right, const TensorRef& addend) {
    Impl::QuantizedLinearBackwardInput{weight.matrix(), y.ref(), x.ref(), {}, {xa.ref(), right}, addend}
        .check();
  };
  backward(a.ref(), x.ref());
  check_error<DimensionMismatch>(
      [&] { backward(b.ref(), {}); },
      "kformer::quantized_linear_backward_input: extents do not match: weight[7,64] "
      "dy[3,7] dxa[3,2] a[7,2] dx[3,64]; expected dxa to have the rows of dy and a the "
      "columns of weight, with one row per column of dxa");
  check_error<DimensionMismatch>([&] { backward(a.ref(), y.ref()); },
                                 "kformer::quantized_linear_backward_input: extents do not match: weight[7,64] "
                                 "dy[3,7] dxa[3,2] a[2,64] addend[3,7] dx[3,64]; expected addend to have the "
                                 "extents of dx");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
