// SPDX-License-Identifier: MIT
#include "kformer/ops/ternary.hpp"

#include "ops/quantized/reference.hpp"
#include "ops/quantized_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/references.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(ternary)

constexpr QuantizedFormat ternary_formats[] = {QuantizedFormat::tq2_0, QuantizedFormat::tq1_0};

/// Memory for a call; Views keep it.
auto workspace_of(std::size_t bytes) {
  return Kokkos::View<std::byte*, typename Exec::memory_space>("kformer::Testing::workspace", bytes);
}

QuantizedWeights quantized_by_mean(QuantizedFormat format, const TestTensor<Exec, float>& weight) {
  QuantizedWeights to(format, weight.ref().extent[0], weight.ref().extent[1]);
  const auto bytes = workspace_of(ternary_quantize_workspace_bytes(Exec(), to.output()));
  ternary_quantize(Exec(), weight.view<2>(), to.output(), bytes);
  Exec().fence("kformer::Testing::ternary");
  BOOST_TEST(to.bytes.guards_intact());
  return to;
}

BOOST_AUTO_TEST_CASE_TEMPLATE(quantising_by_the_mean_magnitude, T, Scalars) {
  std::mt19937 generator(8);
  for (const QuantizedFormat format : ternary_formats)
    for (const std::int64_t cols : {1, 32, 256, 300, 700})
      for (const std::int64_t rows : {0, 1, 3, 17}) {
        const auto weight = TestTensor<Exec, T>({rows, cols}).random(generator, 0.03);
        QuantizedWeights packed(format, rows, cols);
        const auto values = weight.template read<double>();
        double mean = 0;
        for (const double w : values.values())
          mean += std::abs(w) / static_cast<double>(values.values().size());
        const double scale = static_cast<float>(f16(static_cast<float>(mean)));
        const Impl::TernaryQuantize problem{weight.ref(), packed.output()};
        problem.check();
        test_every_kernel(problem, {&packed.bytes}, [&](const std::string&) {
          const auto got = ref::dequantize<double, double>(packed.matrix());
          for (std::size_t i = 0; i < got.values().size(); ++i) {
            const double ratio = std::abs(values.values()[i]) / mean;
            if (std::abs(ratio - 0.5) < 1e-6) continue;  // either code is right within the rounding of the mean
            const double expected = ratio < 0.5 ? 0 : std::copysign(scale, values.values()[i]);
            BOOST_TEST(std::abs(got.values()[i] - expected) <= scale * 0x1p-10);
            BOOST_TEST((got.values()[i] == 0) == (expected == 0));
          }
        });
      }
}

BOOST_AUTO_TEST_CASE(quantising_by_hand) {
  TestTensor<Exec, float> weight({2, 3});
  constexpr float values[] = {4, -1, 0.5f, -2, 1, 3.5f};  // the mean magnitude is 2
  weight.fill([&](std::size_t i) { return values[i]; });
  for (const QuantizedFormat format : ternary_formats) {
    const auto got = ref::dequantize<double, double>(quantized_by_mean(format, weight).matrix());
    BOOST_TEST(got.values() == (std::vector<double>{2, -2, 0, -2, 2, 2}));
  }
}

BOOST_AUTO_TEST_CASE(packing_keeps_every_code) {
  // Every combination of the digits of a byte occurs in each format.
  constexpr std::int64_t rows = 64, cols = 512;
  std::mt19937 generator(9);
  std::uniform_int_distribution<int> any(-1, 1);
  std::vector<double> codes(static_cast<std::size_t>(rows * cols));
  for (double& code : codes) code = any(generator);
  TestTensor<Exec, float> x({rows, cols});
  x.fill([&](std::size_t i) { return codes[i]; });
  for (const QuantizedFormat format : ternary_formats) {
    const QuantizedWeights packed(format, rows, cols), again(format, rows, cols);
    quantize(Exec(), x.view<2>(), packed.output());
    const TestTensor<Exec, float> unpacked({rows, cols});
    dequantize(Exec(), packed.matrix(), unpacked.view<2>());
    quantize(Exec(), unpacked.view<2>(), again.output());
    Exec().fence("kformer::Testing::ternary");
    BOOST_TEST(unpacked.read<double>().values() == codes);
    BOOST_TEST((packed.bytes.bits() == again.bytes.bits()));
  }
}

BOOST_AUTO_TEST_CASE(weights_that_are_not_finite_become_nan_and_zeros_stay) {
  for (const QuantizedFormat format : ternary_formats)
    for (const float value : {0.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
      TestTensor<Exec, float> weight({2, 300});
      weight.fill([&](std::size_t i) { return value == 0 ? 0 : i == 7 ? value : 1.0f; });
      const auto got = ref::dequantize<double, double>(quantized_by_mean(format, weight).matrix());
      for (const double w : got.values()) BOOST_TEST((value == 0 ? w == 0 : std::isnan(w)));
    }
}

/// All codes of the weights and all codes of the activations at an extreme.
void check_extremes(QuantizedFormat format, std::int64_t in, int byte, int sign, double weight_value) {
  constexpr std::int64_t out = 3;
  for (const std::int64_t rows : {1, 5}) {
    QuantizedWeights weight(format, out, in);
    const auto block = static_cast<std::size_t>(bytes_per_block(format));
    weight.bytes.fill([&](std::size_t i) {
      return i % block == block - 1 ? 0x3c : i % block == block - 2 ? 0 : byte;  // the scale is 1
    });
    TestTensor<Exec, float> x({rows, in}), y({rows, out});
    x.fill([&](std::size_t) { return sign * 127.0; });
    const Impl::QuantizedLinearForward problem{
        x.ref(), weight.matrix(), {}, y.ref(), {.activations = Activations::int8}};
    const auto expected =
        static_cast<double>(static_cast<float>(sign * 127.0 * weight_value * static_cast<double>(in)));
    test_every_kernel(problem, {&y}, [&](const std::string&) {
      const auto got = y.read<double>();
      for (const double v : got.values()) BOOST_TEST(v == expected);
    });
  }
}

// Sums of 16 or 32 bits must not overflow on the way; 2²⁰ weights are 2²⁷ in magnitude.
BOOST_AUTO_TEST_CASE(sums_of_extremes_are_exact) {
  for (const std::int64_t in : {256, 2048, 5 * 256 + 17, 1 << 16, 1 << 20})
    for (const int sign : {1, -1}) {
      check_extremes(QuantizedFormat::tq2_0, in, 0xaa, sign, 1);   // all 2: +1
      check_extremes(QuantizedFormat::tq2_0, in, 0x00, sign, -1);  // all 0: −1
      check_extremes(QuantizedFormat::tq2_0, in, 0xff, sign, 2);   // all 3, which no quantiser writes
      check_extremes(QuantizedFormat::tq1_0, in, 0xff, sign, 1);
      check_extremes(QuantizedFormat::tq1_0, in, 0x00, sign, -1);
    }
}

// Against integers: with scales of 1 the result is the integer, below 2²⁴ without rounding.
BOOST_AUTO_TEST_CASE(products_are_exact_integers) {
  std::mt19937 generator(10);
  std::uniform_int_distribution<int> any(-127, 127);
  for (const QuantizedFormat format : ternary_formats)
    for (const std::int64_t in : {256, 1000, 4096})
      for (const std::int64_t rows : {1, 2, 3, 4, 9}) {
        const auto weight =
            QuantizedWeights(format, 13, in).random(generator, [](std::size_t) { return 0x3c00u; });
        TestTensor<Exec, float> x({rows, in}), y({rows, 13});
        x.fill([&](std::size_t i) { return static_cast<std::int64_t>(i) % in == 0 ? 127 : any(generator); });
        const auto expected = ref::linear_forward<double, double>(
            x.read<double>(), ref::dequantize<double, double>(weight.matrix()), {}, {});
        const Impl::QuantizedLinearForward problem{
            x.ref(), weight.matrix(), {}, y.ref(), {.activations = Activations::int8}};
        test_every_kernel(problem, {&y}, [&](const std::string&) {
          BOOST_TEST(y.read<double>().values() == expected.values());
        });
      }
}

// Scales that change from block to block, and runs of the same.
BOOST_AUTO_TEST_CASE(scales_may_change_within_a_row) {
  std::mt19937 generator(11);
  constexpr unsigned scales[] = {0x3c00, 0x3c00, 0x4000, 0x3c00, 0xbc00, 0xbc00, 0x3800};
  for (const QuantizedFormat format : ternary_formats) {
    const auto weight = QuantizedWeights(format, 9, 7 * 256).random(generator, [&](std::size_t block) {
      return scales[block % 7];
    });
    TestTensor<Exec, float> x({5, 7 * 256}), y({5, 9});
    x.fill([&](std::size_t i) { return static_cast<int>(i * 37 % 255) - 127; });
    const auto expected = ref::linear_forward<double, double>(
        x.read<double>(), ref::dequantize<double, double>(weight.matrix()), {}, {});
    const Impl::QuantizedLinearForward problem{
        x.ref(), weight.matrix(), {}, y.ref(), {.activations = Activations::int8}};
    test_every_kernel(problem, {&y},
                      [&](const std::string&) { BOOST_TEST(y.read<double>().values() == expected.values()); });
  }
}

template <class T>
void check_activations(std::int64_t rows, std::int64_t in, std::mt19937& generator) {
  const auto x = TestTensor<Exec, T>({rows, in}).random(generator);
  TestTensor<Exec, T> y({rows, in});
  const auto naive = ref::int8_activations<compute_t<T>, naive_t<T>, T>(x.template read<naive_t<T>>(), 0);
  const Impl::TernaryActivations problem{x.ref(), y.ref()};
  problem.check();
  test_every_kernel(problem, {&y}, [&](const std::string&) { check_close("y", y, naive); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(activations_match_the_oracle, T, Scalars) {
  std::mt19937 generator(12);
  for (const std::int64_t in : {0, 1, 33, 700})
    for (const std::int64_t rows : {0, 1, 6}) check_activations<T>(rows, in, generator);
}

struct Shape {
  std::int64_t rows, in, out;
};

template <class T>
void check_training(Shape s, QuantizedFormat format, std::mt19937& generator) {
  using Real = naive_t<T>;
  const auto x = TestTensor<Exec, T>({s.rows, s.in}).random(generator);
  const auto weight = TestTensor<Exec, T>({s.out, s.in}).random(generator, 0.1);
  const auto dy = TestTensor<Exec, T>({s.rows, s.out}).random(generator);
  const TestTensor<Exec, T> y({s.rows, s.out}), dx({s.rows, s.in});
  const auto dweight = TestTensor<Exec, compute_t<T>>({s.out, s.in}).random(generator);
  const TernaryLinearOptions options{format};
  const auto bytes =
      workspace_of(ternary_linear_forward_workspace_bytes<T>(Exec(), s.rows, s.in, s.out, options));
  const auto more =
      workspace_of(ternary_linear_backward_workspace_bytes<T>(Exec(), s.rows, s.in, s.out, options));
  auto expected_dweight = dweight.template read<Real>();
  ternary_linear_forward(Exec(), x.template view<2>(), weight.template view<2>(), y.template view<2>(), options,
                         bytes);
  ternary_linear_backward(Exec(), x.template view<2>(), weight.template view<2>(), dy.template view<2>(),
                          dx.template view<2>(), dweight.template view<2>(), options, more);
  Exec().fence("kformer::Testing::ternary");
  QuantizedWeights packed(format, s.out, s.in);
  const auto of_mean = workspace_of(ternary_quantize_workspace_bytes(Exec(), packed.output()));
  ternary_quantize(Exec(), weight.template view<2>(), packed.output(), of_mean);
  Exec().fence("kformer::Testing::ternary");
  const auto w = ref::dequantize<Real, T>(packed.matrix());
  const auto inputs = ref::int8_activations<compute_t<T>, Real, T>(x.template read<Real>(), 0);
  const auto gradient = ref::linear_backward_weight(inputs, dy.template read<Real>());
  for (std::size_t i = 0; i < gradient.values().size(); ++i)
    expected_dweight.values()[i] += gradient.values()[i];
  check_close("y", y, ref::linear_forward<Real, T>(inputs, w, {}, {}));
  check_close("dx", dx, ref::linear_backward_input<Real, T>(w, dy.template read<Real>()));
  check_close("dweight", dweight, expected_dweight);
  for (const bool intact : {y.guards_intact(), dx.guards_intact(), dweight.guards_intact()}) BOOST_TEST(intact);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(training_goes_straight_through, T, Scalars) {
  std::mt19937 generator(13);
  for (const Shape s : {Shape{5, 300, 17}, {1, 256, 3}, {33, 64, 40}, {0, 32, 3}})
    for (const QuantizedFormat format : ternary_formats) check_training<T>(s, format, generator);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    std::mt19937 generator(draw.seed());
    check_activations<T>(draw.any(1, 6), draw.any(1, 400), generator);
    const Shape shape{draw.any(1, 40), draw.any(1, draw.one_in(4) ? 600 : 100), draw.any(1, 60)};
    check_training<T>(shape, draw.one_of(ternary_formats), generator);
  });
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  const TestTensor<Exec, float> x({3, 64}), weight({7, 64}), y({3, 7}), dx({3, 64}), dweight({7, 63});
  const QuantizedWeights packed(QuantizedFormat::tq2_0, 7, 64), other(QuantizedFormat::q8_0, 7, 64);
  check_error<NotSupported>([&] { ternary_quantize(Exec(), weight.view<2>(), other.output(), {}); },
                            "kformer::ternary_quantize: the format must be TQ2_0 or TQ1_0, got Q8_0");
  check_error<DimensionMismatch>([&] { ternary_quantize(Exec(), x.view<2>(), packed.output(), {}); },
                                 "kformer::ternary_quantize: extents do not match: weight[3,64] matrix[7,64]; "
                                 "expected weight to have the extents of matrix");
  check_error<DimensionMismatch>([&] { ternary_activations(Exec(), x.view<2>(), y.view<2>()); },
                                 "kformer::ternary_activations: extents do not match: x[3,64] y[3,7]; expected "
                                 "y to have the extents of x");
  check_error<DimensionMismatch>(
      [&] { ternary_linear_forward(Exec(), x.view<2>(), weight.view<2>(), dx.view<2>(), {}, {}); },
      "kformer::ternary_linear_forward: extents do not match: x[3,64] weight[7,64] y[3,64]; expected y to have "
      "the rows of x and one column per row of weight");
  check_error<NotSupported>(
      [&] {
        ternary_linear_forward(Exec(), x.view<2>(), weight.view<2>(), y.view<2>(), {QuantizedFormat::q4_0}, {});
      },
      "kformer::ternary_linear_forward: the format must be TQ2_0 or TQ1_0, got Q4_0");
  check_error<DimensionMismatch>(
      [&] {
        ternary_linear_backward(Exec(), x.view<2>(), weight.view<2>(), y.view<2>(), dx.view<2>(),
                                dweight.view<2>(), {}, {});
      },
      "kformer::ternary_linear_backward: extents do not match: x[3,64] weight[7,64] dy[3,7] dx[3,64] "
      "dweight[7,63]; expected dx and dweight to have the extents of x and weight");
  const std::string text = "kformer::ternary_linear_forward: the workspace has 0 bytes, ";
  try {
    ternary_linear_forward(Exec(), x.view<2>(), weight.view<2>(), y.view<2>(), {}, {});
    BOOST_ERROR("expected an error");
  } catch (const DimensionMismatch& error) {
    BOOST_TEST(std::string(error.what()).substr(0, text.size()) == text);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
