// SPDX-License-Identifier: MIT
#include "ops/nf4_cases.hpp"

#include "support/errors.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(nf4)

// The numbers of QLoRA's appendix E and of bitsandbytes' dynamic map, as they are printed.
BOOST_AUTO_TEST_CASE(values_of_the_codes) {
  for (int code = 0; code < 16; ++code)
    BOOST_TEST(Impl::nf4_value(code) == static_cast<float>(ref::nf4_table[code]));
  const std::vector<float> map = ref::dynamic_map();
  BOOST_REQUIRE(map.size() == 256u);
  for (int code = 0; code < 256; ++code)
    BOOST_TEST(Impl::nf4_absmax_value(code) == static_cast<double>(map[static_cast<std::size_t>(code)]));
  BOOST_TEST(map[0] == -0.99296874f);
  BOOST_TEST(std::abs(map[126] / -5.5e-7 - 1) < 1e-7);
  BOOST_TEST(map[127] == 0);
  BOOST_TEST(map[254] == 0.99296874f);
  BOOST_TEST(map[255] == 1);
}

// Two rows of one and a half blocks: absmax 2, 1, 4 and 1, mean 2.
BOOST_AUTO_TEST_CASE(a_matrix_by_hand) {
  TestTensor<Exec, float> x({2, 96});
  x.fill([](std::size_t i) {
    const std::size_t row = i / 96, col = i % 96;
    if (col == 0) return row == 0 ? -2.0f : 4.0f;
    if (col == 64 || col == 65) return col == 64 ? 1.0f : 0.45f;
    return 0.0f;
  });
  const QuantizedWeights w(QuantizedFormat::nf4, 2, 96);
  quantize(Exec(), x.view<2>(), w.output());
  const auto bytes = bytes_of(w);
  BOOST_REQUIRE(bytes.size() == 4u * 33u + 8u);
  const std::size_t tail = 4 * 33;
  BOOST_TEST(Impl::float_at(&bytes[tail]) == 2);      // the mean
  BOOST_TEST(Impl::float_at(&bytes[tail + 4]) == 2);  // 4 − 2
  BOOST_TEST(bytes[0] == 127);                        // 0
  BOOST_TEST(bytes[33] == 35);                        // −0.5 is nearest to −0.50078…
  BOOST_TEST(bytes[66] == 255);                       // 1
  BOOST_TEST(bytes[99] == 35);
  BOOST_TEST(bytes[1] == 0x07);  // −1, 0
  BOOST_TEST(bytes[2] == 0x77);
  BOOST_TEST(bytes[34] == 0xfc);       // 1, 0.45 is nearest to 0.4407
  BOOST_TEST(bytes[33 + 32] == 0x77);  // behind the last column
  BOOST_TEST(bytes[67] == 0xf7);
  const auto y = dequantized(w);
  BOOST_TEST(y[0] == -2);
  BOOST_TEST(y[96] == 4);
  BOOST_TEST(y[1] == 0);
  BOOST_TEST(std::abs(y[64] - (2 - 2 * 0.50078125)) < 1e-6);
}

// Random, tiny, huge and hostile weights, and every kind of edge, to the bit.
BOOST_AUTO_TEST_CASE_TEMPLATE(quantize_is_the_rule_written_down_a_second_time, T, Scalars) {
  unsigned seed = 20261126;
  for (const auto& [rows, cols] :
       {std::pair{1, 1}, {3, 64}, {2, 65}, {5, 300}, {1, 64 * 257}, {40, 1024}, {0, 64}, {3, 0}})
    for (const WeightKind kind : weight_kinds) {
      std::mt19937 generator(seed++);
      const HostTensor<float> values = weights_of_kind(kind, rows, cols, generator);
      TestTensor<Exec, T> x({rows, cols});
      x.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(values.values()[i])); });
      const auto stored_values = x.template read<float>();
      const QuantizedWeights w(QuantizedFormat::nf4, rows, cols);
      quantize(Exec(), x.template view<2>(), w.output());
      if (std::ranges::any_of(stored_values.values(), [](float v) { return !std::isfinite(v); })) {
        for (const double v : dequantized(w)) BOOST_TEST(std::isnan(v));
        continue;
      }
      BOOST_TEST((bytes_of(w) == ref::quantize_nf4(stored_values)), name_of(kind)
                                                                        << ' ' << rows << ' ' << cols);
      BOOST_TEST(w.bytes.guards_intact());
    }
}

// Weights that are exactly half-way between neighbours get the lower code; the next float gets the upper one.
BOOST_AUTO_TEST_CASE(thresholds_belong_to_the_lower_code) {
  std::vector<float> values{1};
  for (int code = 0; code < 15; ++code) {
    const float middle =
        static_cast<float>(ref::nf4_table[code]) + static_cast<float>(ref::nf4_table[code + 1]);
    values.push_back(middle / 2);
    values.push_back(std::nextafter(middle / 2, 2.0f));
  }
  TestTensor<Exec, float> x({1, 64});
  x.fill([&](std::size_t i) { return i < values.size() ? values[i] : 0.0f; });
  const QuantizedWeights w(QuantizedFormat::nf4, 1, 64);
  quantize(Exec(), x.view<2>(), w.output());
  const auto bytes = bytes_of(w);
  for (std::size_t i = 1; i < values.size(); ++i)
    BOOST_TEST((i % 2 ? bytes[1 + i / 2] & 15 : bytes[1 + i / 2] >> 4) == static_cast<int>(i / 2), i);
}

// The error of a weight is at most half the widest gap of the table and what its scale lost.
BOOST_AUTO_TEST_CASE(errors_are_bounded) {
  std::mt19937 generator(3);
  TestTensor<Exec, float> x({30, 640});
  x.random(generator);
  const QuantizedWeights w(QuantizedFormat::nf4, 30, 640);
  quantize(Exec(), x.view<2>(), w.output());
  const auto from = x.read<double>().values(), to = dequantized(w);
  double squares = 0, error_squares = 0;
  for (std::size_t first = 0; first < from.size(); first += 64) {
    double most = 0;
    for (std::size_t i = first; i < first + 64; ++i) most = std::max(most, std::abs(from[i]));
    for (std::size_t i = first; i < first + 64; ++i) {
      BOOST_TEST(std::abs(from[i] - to[i]) <= 0.16 * most);
      squares += from[i] * from[i];
      error_squares += (from[i] - to[i]) * (from[i] - to[i]);
    }
  }
  BOOST_TEST(error_squares < 0.01 * squares);
}

// Kernels agree with each other where the scale of a block is 0, negative, infinite or NaN, and where a matrix has
// several nested scales: blocks are counted through the matrix.
BOOST_AUTO_TEST_CASE(nested_scales_are_counted_through_the_matrix) {
  const std::int64_t rows = 9, cols = 64 * 60;
  QuantizedWeights w(QuantizedFormat::nf4, rows, cols);
  const std::size_t tail = static_cast<std::size_t>(rows * 60 * 33);
  w.bytes.fill([&](std::size_t i) {
    if (i < tail) return i % 33 == 0 ? 255 : 0xff;  // all weights are n + m
    const float number = i < tail + 4 ? 0.5f : static_cast<float>(1 << (i - tail) / 4);
    return static_cast<int>(Kokkos::bit_cast<std::uint32_t>(number) >> (i - tail) % 4 * 8 & 255);
  });
  const auto y = dequantized(w);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t b = 0; b < 60; ++b)
      BOOST_TEST(y[static_cast<std::size_t>(row * cols + 64 * b)] ==
                 0.5 + static_cast<double>(2 << (row * 60 + b) / 256));
}

BOOST_AUTO_TEST_CASE(int8_activations_are_refused) {
  const TestTensor<Exec, float> x({3, 64}), y({3, 7});
  const QuantizedWeights weight(QuantizedFormat::nf4, 7, 64);
  check_error<NotSupported>(
      [&] { quantized_linear_forward(Exec(), x.view<2>(), weight.matrix(), y.view<2>(), {Activations::int8}); },
      "kformer::quantized_linear_forward: weights in NF4 are values of a table, which 8-bit activations cannot "
      "be "
      "multiplied with as integers; use Activations::full");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
