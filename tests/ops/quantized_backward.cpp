// SPDX-License-Identifier: MIT
#include "ops/quantized/reference.hpp"
#include "ops/quantized_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/references.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(quantized_backward)

struct Shape {
  std::int64_t rows, in, out;
};

template <class T>
struct Operands {
  QuantizedWeights weight;
  TestTensor<Exec, T> dy, dx;

  Operands(QuantizedFormat format, Shape s, Rows rows, unsigned seed)
      : weight(format, s.out, s.in), dy({s.rows, s.out}, rows), dx({s.rows, s.in}, rows) {
    std::mt19937 generator(seed);
    weight.random(generator);
    dy.random(generator);
  }
  Impl::QuantizedLinearBackwardInput problem(double scale) const {
    return {weight.matrix(), dy.ref(), dx.ref(), {scale}};
  }
  void check_every_kernel(double scale) {
    const auto p = problem(scale);
    p.check();
    using Real = naive_t<T>;
    const auto naive = ref::linear_backward_input<Real, T>(ref::dequantize<Real, T>(weight.matrix()),
                                                           dy.template read<Real>(), Real(scale));
    BOOST_TEST_CONTEXT(to_string(weight.format))
    test_every_kernel(p, {&dx}, [&](const std::string&) { check_close("dx", dx, naive); });
  }
};

// Parts of blocks, of units, of tiles and of steps along the sum, and nothing at all.
BOOST_AUTO_TEST_CASE_TEMPLATE(matches_the_oracle, T, Scalars) {
  const Shape shapes[] = {{7, 32, 1},  {1, 64, 49},  {3, 576, 7}, {5, 100, 300}, {33, 257, 70}, {70, 300, 9},
                          {2, 700, 5}, {65, 33, 30}, {9, 1, 8},   {0, 32, 3},    {4, 0, 3},     {4, 32, 0}};
  unsigned seed = 20261125;
  for (const QuantizedFormat format : quantized_formats)
    for (const Shape s : shapes) {
      Operands<T>(format, s, Rows::strided, seed++).check_every_kernel(1);
      Operands<T>(format, s, Rows::packed, seed++).check_every_kernel(-0.75);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const Shape shape{draw.any(1, 40), draw.any(1, draw.one_in(4) ? 600 : 100), draw.any(1, 60)};
    Operands<T>(draw.one_of(quantized_formats), shape, draw.rows(), draw.seed())
        .check_every_kernel(draw.one_of(std::array{1.0, -0.75}));
  });
}

// Tiles of the full size, several of them either way, and several steps along the sum.
BOOST_AUTO_TEST_CASE(large_ones_match_the_oracle) {
  unsigned seed = 4;
  for (const QuantizedFormat format : quantized_formats)
    Operands<float>(format, {140, 600, 530}, Rows::strided, seed++).check_every_kernel(1);
}

// Σ dy·(x Wᵀ) = Σ (dy W)·x, whatever the reference says.
BOOST_AUTO_TEST_CASE(is_the_adjoint_of_forward) {
  for (const QuantizedFormat format : quantized_formats) {
    std::mt19937 generator(5);
    Operands<double> all(format, {6, 300, 40}, Rows::strided, 6);
    const auto x = TestTensor<Exec, double>({6, 300}).random(generator);
    const TestTensor<Exec, double> y({6, 40});
    quantized_linear_forward(Exec(), x.view<2>(), all.weight.matrix(), y.view<2>(), {.scale = 0.5});
    quantized_linear_backward_input(Exec(), all.weight.matrix(), all.dy.view<2>(), all.dx.view<2>(),
                                    {.scale = 0.5});
    Exec().fence("kformer::Testing::quantized_backward");
    const auto dot = [](const TestTensor<Exec, double>& a, const TestTensor<Exec, double>& b) {
      const auto left = a.read<double>(), right = b.read<double>();
      double sum = 0, size = 0;
      for (std::size_t i = 0; i < left.values().size(); ++i) {
        sum += left.values()[i] * right.values()[i];
        size += std::abs(left.values()[i] * right.values()[i]);
      }
      return std::pair(sum, size);
    };
    const auto [forward, size] = dot(all.dy, y);
    const auto [backward, other_size] = dot(all.dx, x);
    BOOST_TEST(size > 0);
    BOOST_TEST(std::abs(forward - backward) <= 1e-12 * (size + other_size), to_string(format));
  }
}

// Scales that are NaN, infinite or greatest, and a gradient that is not finite: nothing is read or written outside,
// and NaN is visible where it belongs.
BOOST_AUTO_TEST_CASE_TEMPLATE(hostile_numbers_do_no_harm, T, Scalars) {
  for (const QuantizedFormat format : quantized_formats) {
    for (const unsigned bits : {0x7e00u, 0x7c00u, 0x7bffu, 0x8000u}) {
      Operands<T> all(format, {40, 600, 9}, Rows::strided, 7);
      std::mt19937 generator(8);
      all.weight.random(generator, [&](std::size_t) { return bits; });
      test_every_kernel(all.problem(1), {&all.dx}, [&](const std::string&) {
        const auto got = all.dx.template read<double>();
        for (const double v : got.values()) BOOST_TEST((bits != 0x7e00u || std::isnan(v)));
      });
    }
    Operands<T> all(format, {6, 300, 5}, Rows::strided, 9);
    const auto values = all.dy.template read<compute_t<T>>();
    all.dy.fill([&](std::size_t i) {
      return T(i == 2 * 5 + 3 ? std::numeric_limits<compute_t<T>>::quiet_NaN() : values.values()[i]);
    });
    test_every_kernel(all.problem(1), {&all.dx}, [&](const std::string&) {
      const auto got = all.dx.template read<double>();
      for (int r = 0; r < 6; ++r)
        for (int i = 0; i < 300; ++i) BOOST_TEST(std::isnan(got(r, i)) == (r == 2));
    });
  }
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  const TestTensor<Exec, float> dy({3, 7}), dx({3, 64}), narrow({3, 63});
  const TestTensor<Exec, bf16> other({3, 64});
  const QuantizedWeights weight(QuantizedFormat::q8_0, 7, 64), high(QuantizedFormat::q8_0, 8, 64);
  const auto backward = [&](const QuantizedMatrix& w, const auto& result, LinearOptions options = {}) {
    quantized_linear_backward_input(Exec(), w, dy.view<2>(), result.template view<2>(), options);
  };
  const std::string extents = "kformer::quantized_linear_backward_input: extents do not match: weight[";
  check_error<DimensionMismatch>(
      [&] { backward(high.matrix(), dx); },
      extents + "8,64] dy[3,7] dx[3,64]; expected weight to have one row per column of dy");
  check_error<DimensionMismatch>(
      [&] { backward(weight.matrix(), narrow); },
      extents + "7,64] dy[3,7] dx[3,63]; expected dx to have the rows of dy and the columns of weight");
  check_error<DimensionMismatch>([&] { backward({QuantizedFormat::q8_0, nullptr, 7, 64}, dx); },
                                 extents + "7,64] dy[3,7] dx[3,64]; expected weight to have data");
  check_error<DimensionMismatch>(
      [&] { Impl::QuantizedLinearBackwardInput{weight.matrix(), dy.ref(), other.ref()}.check(); },
      "kformer::quantized_linear_backward_input: dx is stored as bf16, expected f32: "
      "weight[7,64] dy[3,7] dx[3,64]");
  check_error<NotSupported>([&] { backward(weight.matrix(), dx, {.scale = std::nan("")}); },
                            "kformer::quantized_linear_backward_input: scale must be finite");
  check_error<NotSupported>([&] { backward({static_cast<QuantizedFormat>(9), nullptr, 7, 64}, dx); },
                            "kformer::quantized_linear_backward_input: format has the value 9, which its type "
                            "does not name; choose one of: Q8_0, Q4_0, Q4_1, TQ2_0, TQ1_0, NF4");
  // A square weight, so that dx could be dy.
  const TestTensor<Exec, float> square({3, 64});
  const QuantizedWeights of_square(QuantizedFormat::q8_0, 64, 64);
  check_error<DimensionMismatch>(
      [&] { quantized_linear_backward_input(Exec(), of_square.matrix(), square.view<2>(), square.view<2>()); },
      "kformer::quantized_linear_backward_input: dx shares memory with dy; pass a separate View: weight[4352] "
      "dy[3,64] dx[3,64]");
}

BOOST_AUTO_TEST_CASE(asks_for_no_workspace) {
  const QuantizedMatrix weight{QuantizedFormat::q4_1, nullptr, 7, 64};
  BOOST_TEST(quantized_linear_backward_input_workspace_bytes<float>(Exec(), 3, weight) == 0u);
  BOOST_TEST(quantized_linear_backward_input_workspace_bytes<float>(3, weight) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
