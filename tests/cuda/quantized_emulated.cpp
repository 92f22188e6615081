// SPDX-License-Identifier: MIT
// The CUDA kernels of products with quantised weights on emulated blocks, against the reference by the rule.
#include "cuda/emulated_kernels.hpp"
#include "kformer/core/tensor_parts.hpp"
#include "ops/quantized/cuda/entries.hpp"
#include "ops/quantized_products.hpp"

namespace kformer::Testing {
using namespace quantized_products;

BOOST_AUTO_TEST_SUITE(quantized_emulated)

constexpr auto kernel = Impl::cuda::QuantizedLinearEntry<Exec>::entry();
constexpr EmulatedKernels emulated(kernel);

// Parts of words, blocks and passes, several passes, parts of rows and columns that share a block, and
// nothing at all.
const std::vector<Shape> shapes{{1, 32, 1},  {1, 33, 9},   {1, 1, 3},    {4, 64, 8},   {3, 40, 17},
                                {1, 257, 2}, {16, 328, 5}, {5, 1096, 3}, {1, 4504, 3}, {2, 9000, 2},
                                {0, 32, 3},  {4, 0, 3},    {4, 32, 0}};

template <class T>
void check_format(QuantizedFormat format, unsigned seed) {
  for (const Shape s : shapes)
    for (const auto activations : activations_with(format))
      for (const auto added : {Added::nothing, Added::residual, Added::to_y})
        test_linear<T>({format, activations, added, Rows::aligned}, s, seed++, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(q8_0_matches_the_oracle, T, UpToFloat) {
  check_format<T>(QuantizedFormat::q8_0, 20261128);
}
BOOST_AUTO_TEST_CASE_TEMPLATE(q4_0_matches_the_oracle, T, UpToFloat) {
  check_format<T>(QuantizedFormat::q4_0, 20261228);
}
BOOST_AUTO_TEST_CASE_TEMPLATE(q4_1_matches_the_oracle, T, UpToFloat) {
  check_format<T>(QuantizedFormat::q4_1, 20261328);
}
BOOST_AUTO_TEST_CASE_TEMPLATE(tq2_0_matches_the_oracle, T, UpToFloat) {
  check_format<T>(QuantizedFormat::tq2_0, 20261428);
}
BOOST_AUTO_TEST_CASE_TEMPLATE(tq1_0_matches_the_oracle, T, UpToFloat) {
  check_format<T>(QuantizedFormat::tq1_0, 20261528);
}
// 1270 blocks, of five nested scales.
BOOST_AUTO_TEST_CASE_TEMPLATE(nf4_matches_the_oracle, T, UpToFloat) {
  check_format<T>(QuantizedFormat::nf4, 20261628);
  test_linear<T>({QuantizedFormat::nf4, Activations::full, Added::nothing, Rows::aligned}, {2, 8128, 10}, 1,
                 emulated);
}

// The ring of copies is used more than once.
BOOST_AUTO_TEST_CASE(long_rows_match_the_oracle) {
  for (const QuantizedFormat format : quantized_formats)
    for (const auto activations : activations_with(format))
      test_linear<bf16>({format, activations, Added::nothing, Rows::aligned}, {2, 20000, 3}, 7, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_adds_the_terms_of_an_adapter, T, UpToFloat) {
  unsigned seed = 20261201;
  for (const QuantizedFormat format : quantized_formats)
    for (const AdapterShape s : {AdapterShape{1, 64, 9, 1}, {8, 104, 7, 5}, {3, 40, 9, 70}, {3, 40, 9, 0}})
      for (const bool residual : {false, true})
        test_adapter<T>(format, s, residual, Rows::aligned, seed++, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(hostile_numbers_do_no_harm, T, UpToFloat) {
  test_hostile_numbers<T>({1, 5}, Rows::aligned, emulated);
}

// 8-bit activations alone take any number of rows, at any address.
BOOST_AUTO_TEST_CASE_TEMPLATE(many_strided_rows_of_8_bits_match_the_oracle, T, UpToFloat) {
  for (const QuantizedFormat format : quantized_formats)
    if (has_integer_codes(format))
      test_linear<T>({format, Activations::int8, Added::nothing, Rows::strided}, {33, 100, 9}, 5, emulated);
}

// Weights of ±d whose products cancel: a sum within a block that is no integer leaves roundings.
BOOST_AUTO_TEST_CASE(sums_of_8_bit_activations_are_exact) {
  const auto check = [](QuantizedFormat format, const std::vector<int>& bytes) {
    const auto weight = weights_of_bytes(format, 1, weights_per_block(format), bytes);
    TestTensor<Exec, float> x({7, weight.cols}), y({7, 1});
    x.fill([&](std::size_t i) {
      const std::size_t row = i / static_cast<std::size_t>(weight.cols);
      return 0.3f + 0.1f * static_cast<float>(row);
    });
    const Impl::QuantizedLinearForward problem{x.ref(), weight.matrix(), {}, y.ref(), {Activations::int8, 1}};
    emulated(problem, {&y}, [&](const std::string&) {
      BOOST_TEST(y.read<double>().values() == std::vector<double>(7), to_string(format));
    });
  };
  std::vector<int> q8(34, 0x55), q40(18, 0x79), tq2(66, 0);
  for (int i = 18; i < 34; ++i) q8[i] = 0x100 - 0x55;
  q8[0] = q40[0] = 0x66, q8[1] = q40[1] = 0x2a;
  for (int i = 0; i < 64; ++i) tq2[i] = i < 32 ? 0xaa : 0;
  tq2[64] = 0x66, tq2[65] = 0x2a;
  check(QuantizedFormat::q8_0, q8);
  check(QuantizedFormat::q4_0, q40);
  check(QuantizedFormat::tq2_0, tq2);
}

// Greatest weights and inputs, whose product is a number though that of a code and the input is none.
BOOST_AUTO_TEST_CASE(weights_are_scaled_before_they_are_multiplied) {
  std::vector<int> q8(34, 0);
  q8[1] = 0x04, q8[2] = 100;  // 2^-14
  const auto weight = weights_of_bytes(QuantizedFormat::q8_0, 1, 32, q8);
  TestTensor<Exec, float> x({1, 32}), y({1, 1});
  x.fill([](std::size_t i) { return i == 0 ? 0x1p127f : 0.0f; });
  emulated(Impl::QuantizedLinearForward{x.ref(), weight.matrix(), {}, y.ref(), {Activations::full, 1}}, {&y},
           [&](const std::string&) { BOOST_TEST(y.read<double>().values().at(0) == 100 * 0x1p113); });
}

// Rows alone and beside others, in each place of a pass.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_row_has_the_same_bits_beside_others, T, UpToFloat) {
  std::mt19937 generator(9);
  constexpr std::int64_t rows = 9, in = 616, out = 11;
  const auto x = TestTensor<Exec, T>({rows, in}, Rows::aligned).random(generator);
  for (const QuantizedFormat format : quantized_formats)
    for (const auto activations : activations_with(format)) {
      const auto weight = QuantizedWeights(format, out, in).random(generator);
      const auto result = [&](std::int64_t first, std::int64_t count) {
        TestTensor<Exec, T> y({count, out}, Rows::packed);
        HostTensor<double> values;
        emulated(
            Impl::QuantizedLinearForward{
                Impl::rows_of(x.ref(), first, count), weight.matrix(), {}, y.ref(), {activations, 0.7}},
            {&y}, [&](const std::string&) { values = y.template read<double>(); });
        return values;
      };
      const auto all = result(0, rows);
      for (std::int64_t first = 0; first < rows; ++first)
        for (const std::int64_t count : {std::int64_t(1), std::min<std::int64_t>(3, rows - first)}) {
          const auto some = result(first, count);
          for (std::int64_t r = 0; r < count; ++r)
            for (std::int64_t o = 0; o < out; ++o)
              BOOST_TEST(some(r, o) == all(first + r, o), to_string(format));
        }
    }
}

BOOST_AUTO_TEST_CASE(refusals_say_why) {
  struct Case {
    std::int64_t rows = 3, in = 64;
    Rows layout = Rows::aligned;
    QuantizedLinearOptions options{};
    QuantizedFormat format = QuantizedFormat::q8_0;
    int bytes_off = 0;
  };
  const auto refusal = []<class T>(std::type_identity<T>, const Case& c) {
    const TestTensor<Exec, T> x({c.rows, c.in}, c.layout), y({c.rows, 5});
    const QuantizedWeights weight(c.format, 5, c.in);
    QuantizedMatrix matrix = weight.matrix();
    matrix.data += c.bytes_off;
    return kernel.reject({x.ref(), matrix, {}, y.ref(), c.options});
  };
  const std::type_identity<bf16> half;
  const QuantizedLinearOptions int8{.activations = Activations::int8}, invariant{.batch_invariant = true},
      both{.activations = Activations::int8, .batch_invariant = true};
  BOOST_TEST(refusal(half, {}) == "");
  BOOST_TEST(refusal(half, {.rows = 16}) == "");
  BOOST_TEST(refusal(half, {.rows = 17}) ==
             "x has 17 rows, but it reads the weights again for every 4 and takes at most 16");
  BOOST_TEST(refusal(half, {.rows = 17, .layout = Rows::strided, .options = both}) == "");
  BOOST_TEST(refusal(half, {.options = invariant}) ==
             "many rows would have another kernel, which sums in another order, and batch_invariant is set");
  BOOST_TEST(refusal(half, {.layout = Rows::strided}) ==
             "x has a stride of 69 elements, which is not a multiple of 16 bytes");
  BOOST_TEST(refusal(half, {.bytes_off = 2}) == "weight is not aligned to 16 bytes");
  BOOST_TEST(refusal(half, {.options = int8, .bytes_off = 8}) == "weight is not aligned to 16 bytes");
  BOOST_TEST(refusal(half, {.options = int8, .format = QuantizedFormat::nf4}) ==
             "it multiplies 8-bit activations with integers, but the weights are values of a table");
  BOOST_TEST(refusal(std::type_identity<double>{}, {}) ==
             "operands are stored as f64, but it supports only f32, bf16 and f16");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
