// SPDX-License-Identifier: MIT
#include "kformer/ops/quantized.hpp"

#include "ops/dense_ref.hpp"
#include "ops/quantized_products.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;
using namespace quantized_products;

BOOST_AUTO_TEST_SUITE(quantized)

// Parts of blocks, of groups of blocks, of groups of rows and of tiles, and nothing at all.
const std::vector<Shape> shapes{{7, 32, 1},    {1, 64, 49},   {3, 576, 7},   {5, 100, 7},
                                {17, 33, 49},  {4, 1536, 33}, {33, 257, 7},  {1, 700, 70},
                                {100, 64, 50}, {9, 300, 130}, {70, 600, 20}, {70, 600, 96},
                                {8, 1, 5},     {0, 32, 3},    {4, 0, 3},     {4, 32, 0}};

template <class T>
void check_linear(QuantizedFormat format, Shape s, Activations activations, Added added, unsigned seed) {
  const auto rows = added == Added::residual ? Rows::packed : Rows::strided;
  test_linear<T>({format, activations, added, rows}, s, seed, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(linear_matches_the_oracle, T, Scalars) {
  unsigned seed = 20261121;
  constexpr Added in_turn[] = {Added::nothing, Added::residual, Added::to_y};
  for (const QuantizedFormat format : quantized_formats)
    for (const Shape s : shapes)
      for (const auto activations : activations_with(format)) {
        check_linear<T>(format, s, activations, in_turn[seed % 3], seed);
        ++seed;
      }
}

// Several tiles of rows and of columns, and several steps, the last of one unit.
BOOST_AUTO_TEST_CASE_TEMPLATE(many_rows_of_8_bit_activations_match_the_oracle, T, UpToFloat) {
  for (const auto format : {QuantizedFormat::q8_0, QuantizedFormat::q4_0, QuantizedFormat::q4_1})
    for (const Rows rows : {Rows::strided, Rows::packed})
      test_linear<T>({format, Activations::int8, Added::nothing, rows}, {131, 530, 60}, 20261129, every_kernel);
}

template <class T>
void check_conversion(QuantizedFormat format, std::int64_t rows, std::int64_t cols, std::mt19937& generator) {
  const auto weight = QuantizedWeights(format, rows, cols).random(generator);
  TestTensor<Exec, T> y({rows, cols});
  const auto naive = ref::dequantize<naive_t<T>, T>(weight.matrix());
  const Impl::Dequantize problem{weight.matrix(), y.ref()};
  problem.check();
  test_every_kernel(problem, {&y}, [&](const std::string&) { check_close("y", y, naive); });
}

// Weights of ±d, whose codes are 9 and 7: a shift by 8 that is not in the sum of integers leaves roundings.
BOOST_AUTO_TEST_CASE(sums_of_8_bit_activations_are_exact) {
  std::vector<int> bytes(18, 0x79);
  bytes[0] = 0x66, bytes[1] = 0x2a;
  const auto weight = weights_of_bytes(QuantizedFormat::q4_0, 1, 32, bytes);
  TestTensor<Exec, float> x({7, 32}), y({7, 1});
  x.fill([](std::size_t i) {
    const std::size_t row = i / 32;
    return 0.3f + 0.1f * static_cast<float>(row);
  });
  const Impl::QuantizedLinearForward problem{x.ref(), weight.matrix(), {}, y.ref(), {Activations::int8, 1}};
  test_every_kernel(problem, {&y}, [&](const std::string& kernel) {
    if (kernel.starts_with("simd")) BOOST_TEST(y.read<double>().values() == std::vector<double>(7));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(conversions_match_the_oracle, T, Scalars) {
  std::mt19937 generator(3);
  for (const QuantizedFormat format : quantized_formats)
    for (const std::int64_t cols : {1, 32, 33, 64, 300, 576})
      for (const std::int64_t rows : {0, 1, 5}) check_conversion<T>(format, rows, cols, generator);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const QuantizedFormat format = draw.one_of(quantized_formats);
    const Shape shape{draw.any(1, 40), draw.any(1, draw.one_in(4) ? 600 : 100), draw.any(1, 60)};
    check_linear<T>(format, shape, draw.one_of(activations_with(format)),
                    draw.one_of(std::array{Added::nothing, Added::residual, Added::to_y}), draw.seed());
    std::mt19937 generator(draw.seed());
    check_conversion<T>(format, draw.any(1, 6), draw.any(1, 400), generator);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(embedding_takes_rows_and_gives_nan_outside, T, Scalars) {
  std::mt19937 generator(4);
  for (const QuantizedFormat format : quantized_formats)
    for (const std::int64_t cols : {1, 70, 576}) {
      const auto weight = QuantizedWeights(format, 6, cols).random(generator);
      const std::int32_t some[] = {5, -1, 0, 6, 5, std::numeric_limits<std::int32_t>::min(), 3};
      TestTensor<Exec, std::int32_t> ids({7});
      ids.fill([&](std::size_t i) { return some[i]; });
      TestTensor<Exec, T> y({7, cols}), table({6, cols});
      dequantize(Exec(), weight.matrix(), table.template view<2>());
      Exec().fence("kformer::Testing::quantized");
      const auto expected = table.template read<double>();
      test_every_kernel(Impl::QuantizedEmbeddingForward{ids.ref(), weight.matrix(), y.ref()}, {&y},
                        [&](const std::string&) {
                          const auto got = y.template read<double>();
                          for (std::int64_t r = 0; r < 7; ++r)
                            for (std::int64_t i = 0; i < cols; ++i) {
                              const bool valid = some[r] >= 0 && some[r] < 6;
                              BOOST_TEST((valid ? got(r, i) == expected(some[r], i) : std::isnan(got(r, i))));
                            }
                        });
    }
}

template <class T = float>
std::vector<double> dequantized(const QuantizedWeights& weight) {
  TestTensor<Exec, T> y({weight.rows, weight.cols});
  dequantize(Exec(), weight.matrix(), y.template view<2>());
  Exec().fence("kformer::Testing::quantized");
  return y.template read<double>().values();
}

// 0x3c00 is 1, 0x3800 is 0.5, 0xc000 is −2 in binary16.
BOOST_AUTO_TEST_CASE(blocks_by_hand) {
  std::vector<int> q8(34, 0), q40(18, 0), q41(20, 0), tq2(66, 0), tq1(54, 0);
  q8[1] = 0x38;
  q8[2] = 0x80;
  q8[33] = 0x7f;
  auto w = dequantized(weights_of_bytes(QuantizedFormat::q8_0, 1, 32, q8));
  BOOST_TEST(w[0] == -64);
  BOOST_TEST(w[1] == 0);
  BOOST_TEST(w[31] == 63.5);

  q40[1] = 0x3c;
  q40[2] = 0xf1;
  w = dequantized(weights_of_bytes(QuantizedFormat::q4_0, 1, 32, q40));
  BOOST_TEST(w[0] == -7);
  BOOST_TEST(w[16] == 7);
  BOOST_TEST(w[1] == -8);

  q41[1] = 0x38;
  q41[3] = 0xc0;
  q41[19] = 0x5a;
  w = dequantized(weights_of_bytes(QuantizedFormat::q4_1, 1, 32, q41));
  BOOST_TEST(w[0] == -2);
  BOOST_TEST(w[15] == 3);
  BOOST_TEST(w[31] == 0.5);

  tq2[65] = 0x3c;
  tq2[33] = 2 << 4 | 1 << 6;  // second half, byte 1: planes 2 and 3
  w = dequantized(weights_of_bytes(QuantizedFormat::tq2_0, 1, 256, tq2));
  BOOST_TEST(w[0] == -1);
  BOOST_TEST(w[128 + 64 + 1] == 1);
  BOOST_TEST(w[128 + 96 + 1] == 0);

  tq1[53] = 0x3c;
  tq1[2] = (2 * 81 * 256 + 242) / 243;             // digits 2 0 0 0 0
  tq1[34] = (1 * 256 + 242) / 243;                 // digits 0 0 0 0 1
  tq1[49] = ((1 * 27 + 2 * 3) * 256 + 242) / 243;  // digits 0 1 0 2, and the unused one
  w = dequantized(weights_of_bytes(QuantizedFormat::tq1_0, 1, 256, tq1));
  BOOST_TEST(w[2] == 1);
  BOOST_TEST(w[34] == -1);
  BOOST_TEST(w[160 + 64 + 2] == 0);
  BOOST_TEST(w[160 + 48 + 2] == -1);
  BOOST_TEST(w[240 + 1] == -1);
  BOOST_TEST(w[244 + 1] == 0);
  BOOST_TEST(w[252 + 1] == 1);
}

std::vector<unsigned char> quantized_bits(const QuantizedWeights& to, const std::vector<double>& values) {
  TestTensor<Exec, float> x({to.rows, to.cols});
  x.fill([&](std::size_t i) { return values.at(i); });
  quantize(Exec(), x.view<2>(), to.output());
  Exec().fence("kformer::Testing::quantized");
  BOOST_TEST(to.bytes.guards_intact());
  return to.bytes.bits();
}

// The results of the rules for even numbers.
BOOST_AUTO_TEST_CASE(rules_by_hand) {
  const auto q8 = QuantizedWeights(QuantizedFormat::q8_0, 1, 32);
  std::vector<double> x(32, 0.0);
  x[0] = -63.5, x[1] = 0.25, x[2] = -0.25, x[3] = 0.2;
  quantized_bits(q8, x);
  auto w = dequantized(q8);
  BOOST_TEST(w[0] == -63.5);
  BOOST_TEST(w[1] == 0.5);  // halves away from zero
  BOOST_TEST(w[2] == -0.5);
  BOOST_TEST(w[3] == 0);

  const auto q40 = QuantizedWeights(QuantizedFormat::q4_0, 1, 32);
  std::fill(x.begin(), x.end(), 0.0);
  x[4] = -8, x[5] = 8, x[20] = 2.5;  // the first of greatest magnitude decides the sign: 8 is out of reach
  quantized_bits(q40, x);
  w = dequantized(q40);
  BOOST_TEST(w[4] == -8);
  BOOST_TEST(w[5] == 7);
  BOOST_TEST(w[20] == 3);
  BOOST_TEST(w[6] == 0);

  const auto q41 = QuantizedWeights(QuantizedFormat::q4_1, 1, 32);
  for (std::size_t i = 0; i < 32; ++i) x[i] = 3 + 0.5 * static_cast<double>(i % 16);
  quantized_bits(q41, x);
  BOOST_TEST(dequantized(q41) == x);
}

BOOST_AUTO_TEST_CASE(quantising_again_changes_nothing) {
  std::mt19937 generator(5);
  std::normal_distribution<double> normal;
  for (const QuantizedFormat format : quantized_formats)
    for (const std::int64_t cols : {256, 512, 100}) {
      if (format == QuantizedFormat::nf4) continue;  // by itself in nf4.cpp
      const QuantizedWeights once(format, 3, cols), twice(format, 3, cols);
      std::vector<double> x(static_cast<std::size_t>(3 * cols));
      for (double& value : x) value = normal(generator);
      quantized_bits(once, x);
      const auto values = dequantized(once);
      quantized_bits(twice, values);
      // Of the nibbles, those nearest to the extremes may land beside them; weights that are ±d or 0 are exact.
      if (is_ternary(format)) {
        BOOST_TEST((once.bytes.bits() == twice.bytes.bits()), to_string(format));
        BOOST_TEST(dequantized(twice) == values);
      }
      const std::int64_t block = weights_per_block(format);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto col = static_cast<std::int64_t>(i) % cols, first = col / block * block;
        double extreme = 0;
        for (std::int64_t k = first; k < std::min(cols, first + block); ++k)
          extreme = std::max(extreme, std::abs(x[i - static_cast<std::size_t>(col - k)]));
        // Half a step, or a whole one at the end that q4_0 does not reach; a step of binary16 more.
        const double step = format == QuantizedFormat::q8_0 ? extreme / 127 / 2
                            : is_ternary(format)            ? extreme / 2
                                                            : extreme / 7.5;
        BOOST_TEST(std::abs(values[i] - x[i]) <= step * 1.01 + extreme * 0x1p-10);
      }
    }
}

BOOST_AUTO_TEST_CASE(blocks_that_are_not_finite_become_nan) {
  for (const QuantizedFormat format : quantized_formats)
    for (const double bad :
         {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      const QuantizedWeights w(format, 1, 512);
      std::vector<double> x(512, 1.0);
      x[3] = bad;
      quantized_bits(w, x);
      const auto values = dequantized(w);
      BOOST_TEST(std::isnan(values[3]));
      BOOST_TEST(std::isnan(values[0]));
      // The scales of all blocks of NF4 depend on their mean.
      BOOST_TEST((has_separate_rows(format) ? std::abs(values[300] - 1) < 0.1 : std::isnan(values[300])));
    }
}

BOOST_AUTO_TEST_CASE(zeros_and_tiny_numbers_stay_finite) {
  for (const QuantizedFormat format : quantized_formats)
    for (const double value : {0.0, -0.0, 1e-44, 1e-38, -1e-30}) {
      const QuantizedWeights w(format, 1, 256);
      quantized_bits(w, std::vector<double>(256, value));
      // The scales of NF4 are floats, and hold what is too small for binary16.
      for (const double v : dequantized(w))
        BOOST_TEST((v == 0 || (v == static_cast<float>(value) && format == QuantizedFormat::nf4)));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(hostile_numbers_do_no_harm, T, Scalars) {
  test_hostile_numbers<T>({1, 5, 40}, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE(names_and_sizes) {
  for (const QuantizedFormat format : quantized_formats)
    BOOST_TEST((quantized_format_named(to_string(format)) == format));
  BOOST_TEST(!quantized_format_named("q8_0"));
  BOOST_TEST(!quantized_format_named("Q5_0"));
  BOOST_TEST(quantized_row_bytes(QuantizedFormat::q4_1, 576) == 360);
  BOOST_TEST(quantized_row_bytes(QuantizedFormat::q8_0, 33) == 68);
  BOOST_TEST(quantized_row_bytes(QuantizedFormat::tq1_0, 0) == 0);
  BOOST_TEST(quantized_bytes(QuantizedFormat::tq2_0, 3, 257) == 3u * 132u);
  BOOST_TEST(quantized_row_bytes(QuantizedFormat::nf4, 65) == 66);
  BOOST_TEST(quantized_bytes(QuantizedFormat::nf4, 2, 65) == 2u * 66u + 4u + 4u);
  BOOST_TEST(quantized_bytes(QuantizedFormat::nf4, 4, 64 * 64) == 256u * 33u + 4u + 4u);
  BOOST_TEST(quantized_bytes(QuantizedFormat::nf4, 1, 64 * 257) == 257u * 33u + 4u + 8u);
  BOOST_TEST(quantized_bytes(QuantizedFormat::nf4, 0, 65) == 0u);
  BOOST_TEST(quantized_bytes(QuantizedFormat::nf4, 3, 0) == 0u);
  // QLoRA's 4.127 bits per weight.
  BOOST_TEST(static_cast<double>(quantized_bytes(QuantizedFormat::nf4, 4096, 4096)) < 0.516 * 4096 * 4096);
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  const TestTensor<Exec, float> x({3, 64}), y({3, 7}), narrow({3, 6});
  const TestTensor<Exec, bf16> other({3, 7});
  const QuantizedWeights weight(QuantizedFormat::q4_1, 7, 64), wide(QuantizedFormat::q4_1, 7, 65);
  const auto forward = [&](const QuantizedMatrix& w, const auto& result, QuantizedLinearOptions options = {}) {
    quantized_linear_forward(Exec(), x.view<2>(), w, result.template view<2>(), options);
  };
  check_error<DimensionMismatch>([&] { forward(wide.matrix(), y); },
                                 "kformer::quantized_linear_forward: extents do not match: x[3,64] "
                                 "weight[7,65] y[3,7]; expected weight to have one column per column of x");
  check_error<DimensionMismatch>([&] { forward(weight.matrix(), narrow); },
                                 "kformer::quantized_linear_forward: extents do not match: x[3,64] "
                                 "weight[7,64] y[3,6]; expected y to have the rows of x and one column per "
                                 "row of weight");
  check_error<DimensionMismatch>(
      [&] { Impl::QuantizedLinearForward{x.ref(), weight.matrix(), {}, other.ref()}.check(); },
      "kformer::quantized_linear_forward: y is stored as bf16, expected f32: "
      "x[3,64] weight[7,64] y[3,7]");
  check_error<DimensionMismatch>([&] { forward({QuantizedFormat::q4_1, nullptr, 7, 64}, y); },
                                 "kformer::quantized_linear_forward: extents do not match: x[3,64] "
                                 "weight[7,64] y[3,7]; expected weight to have data");
  check_error<NotSupported>(
      [&] { forward(weight.matrix(), y, {.scale = std::numeric_limits<double>::infinity()}); },
      "kformer::quantized_linear_forward: scale must be finite");
  const std::string unnamed = " has the value 7, which its type does not name; choose one of: ";
  check_error<NotSupported>([&] { forward(weight.matrix(), y, {.activations = static_cast<Activations>(7)}); },
                            "kformer::quantized_linear_forward: activations" + unnamed + "full, int8");
  check_error<NotSupported>(
      [&] { forward({static_cast<QuantizedFormat>(7), nullptr, 7, 64}, y); },
      "kformer::quantized_linear_forward: format" + unnamed + "Q8_0, Q4_0, Q4_1, TQ2_0, TQ1_0, NF4");
  check_error<DimensionMismatch>(
      [&] {
        quantized_linear_residual_forward(Exec(), x.view<2>(), weight.matrix(), narrow.view<2>(), y.view<2>());
      },
      "kformer::quantized_linear_residual_forward: extents do not match: x[3,64] weight[7,64] residual[3,6] "
      "y[3,7]; expected residual to have the extents of y");
  check_error<DimensionMismatch>([&] { dequantize(Exec(), weight.matrix(), y.view<2>()); },
                                 "kformer::dequantize: extents do not match: matrix[7,64] y[3,7]; expected y "
                                 "to have the extents of matrix");
  check_error<DimensionMismatch>([&] { quantize(Exec(), x.view<2>(), weight.output()); },
                                 "kformer::quantize: extents do not match: x[3,64] matrix[7,64]; expected x to "
                                 "have the extents of matrix");
  const TestTensor<Exec, std::int32_t> ids({3});
  check_error<DimensionMismatch>(
      [&] { quantized_embedding_forward(Exec(), ids.view<1>(), weight.matrix(), y.view<2>()); },
      "kformer::quantized_embedding_forward: extents do not match: ids[3] weight[7,64] y[3,7]; expected y to "
      "have one row per id and the columns of weight");
}

// Tiles hold rows of x. Nothing is launched: the operands have no memory.
BOOST_AUTO_TEST_CASE(simd_kernels_refuse_rows_that_exceed_scratch_memory) {
  if (!Impl::is_host_space<Exec>) return;
  for (const auto activations : {Activations::full, Activations::int8}) {
    const auto problem = [&](std::int64_t in) {
      return Impl::QuantizedLinearForward{
          dense({4, in}), {QuantizedFormat::q8_0, nullptr, 8, in}, {}, dense({4, 8}), {activations}};
    };
    for (const auto& kernel : kernels<Impl::QuantizedLinearForward, Exec>()) {
      if (!std::string_view(kernel.name).starts_with("simd_") || !kernel.reject(problem(64)).empty()) continue;
      const std::string why = kernel.reject(problem(1 << 27));
      BOOST_TEST((why.find(" bytes of scratch memory, but Kokkos has ") != why.npos),
                 kernel.name << ": " << why);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
