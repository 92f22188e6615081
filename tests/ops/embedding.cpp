// SPDX-License-Identifier: MIT
#include "ops/embedding_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/large_matrix.hpp"

namespace kformer::Testing {
using namespace embedding_cases;

BOOST_AUTO_TEST_SUITE(embedding)

// More ids than classes of ids, more rows of a class than are collected at once, and more columns than a block
// of them, occur.
const std::vector<Shape> shapes{{1, 1, 1},    {7, 3, 5}, {200, 1000, 13}, {75, 2, 113}, {3000, 5, 33},
                                {9, 4, 4099}, {0, 3, 8}, {3, 0, 8},       {3, 5, 0}};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_copies_rows, T, Scalars) {
  for (const Shape shape : shapes) {
    Tensors<T> t(shape);
    const auto expected =
        ref::embedding_forward(t.ids.template read<double>(), t.weight.template read<double>());
    test_every_kernel(
        Impl::EmbeddingForward{t.ids.ref(), t.weight.ref(), t.y.ref()}, {&t.y}, [&](const std::string&) {
          const auto got = t.y.template read<double>().values();
          for (std::size_t i = 0; i < got.size(); ++i)
            BOOST_TEST(
                (got[i] == expected.values()[i] || (std::isnan(got[i]) && std::isnan(expected.values()[i]))));
        });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(large_results_are_copies_too, T, Scalars) {
  constexpr std::int64_t rows = 1100, vocabulary = 37, row_bytes = 16384;
  const LargeMatrix<T> weight = large_matrix<T>(vocabulary, row_bytes, 1),
                       expected = large_zeros<T>(rows, row_bytes);
  TestTensor<Exec, std::int32_t> ids({rows});
  ids.fill([](std::size_t i) { return static_cast<std::int32_t>(i * i % vocabulary); });
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t id = row * row % vocabulary;
    Kokkos::deep_copy(Exec(), rows_of(expected, row, row + 1), rows_of(weight, id, id + 1));
  }
  with_each_kernel(&Impl::EmbeddingForward::weight, dtype_of<T>, [&] {
    const LargeMatrix<T> y = large_zeros<T>(rows, row_bytes);
    embedding_forward(Exec(), ids.view<1>(), rows_of(weight, 0, vocabulary), rows_of(y, 0, rows));
    BOOST_TEST(same_bits(y, expected));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes) test_backward(Tensors<T>(shape), every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const Shape shape{draw.any(1, draw.one_in(8) ? 1000 : 60), draw.any(1, 30), draw.any(1, 80)};
    test_backward(Tensors<T>(shape, draw.seed()), every_kernel);
  });
}

BOOST_AUTO_TEST_CASE(backward_adds_rows_in_their_order) {
  // In float, 1 is lost in 2^26 and 3 is kept by 0: only the order of the rows gives exactly 3.
  TestTensor<Exec, std::int32_t> ids({4});
  TestTensor<Exec, float> dy({4, 1}), dweight({3, 1});
  const float values[] = {1, 0x1p26f, -0x1p26f, 3};
  ids.fill([](std::size_t) { return 2; });
  dy.fill([&](std::size_t i) { return values[i]; });
  dweight.fill([](std::size_t) { return 0; });
  embedding_backward(Exec(), ids.view<1>(), dy.view<2>(), dweight.view<2>());
  Exec().fence("kformer::Testing::embedding");
  BOOST_TEST(dweight.read<double>().values() == (std::vector<double>{0, 0, 3}));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(invalid_ids_give_nan_and_contribute_nothing, T, Scalars) {
  Tensors<T> t({4, 3, 5});
  const std::int32_t ids[] = {2, -1, 3, std::numeric_limits<std::int32_t>::min()};
  t.ids.fill([&](std::size_t i) { return ids[i]; });
  test_every_kernel(Impl::EmbeddingForward{t.ids.ref(), t.weight.ref(), t.y.ref()}, {&t.y},
                    [&](const std::string&) {
                      const auto y = t.y.template read<double>();
                      for (int row = 0; row < 4; ++row)
                        for (int h = 0; h < 5; ++h) BOOST_TEST(std::isnan(y(row, h)) == (row != 0));
                    });
  const auto before = t.dweight.template read<double>();
  const auto dy = t.dy.template read<compute_t<T>>();
  t.dy.fill([&](std::size_t i) {
    return T(i < 5 ? dy.values()[i] : std::numeric_limits<compute_t<T>>::quiet_NaN());
  });
  test_every_kernel(Impl::EmbeddingBackward{t.ids.ref(), t.dy.ref(), t.dweight.ref()}, {&t.dweight},
                    [&](const std::string&) {
                      const auto after = t.dweight.template read<double>();
                      for (int h = 0; h < 5; ++h) {
                        BOOST_TEST(after(0, h) == before(0, h));
                        BOOST_TEST(after(1, h) == before(1, h));
                        BOOST_TEST(after(2, h) == static_cast<compute_t<T>>(before(2, h)) + dy(0, h));
                      }
                    });
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  HostTensor<double> ids({3}), weight({2, 1}), dy({3, 1}), dweight({2, 1}, 100.0);
  ids(0) = ids(2) = 1;
  weight(0, 0) = 5;
  weight(1, 0) = 7;
  for (int i = 0; i < 3; ++i) dy(i, 0) = i + 1;
  BOOST_TEST(ref::embedding_forward(ids, weight).values() == (std::vector<double>{7, 5, 7}));
  BOOST_TEST(ref::embedding_backward(ids, dy, dweight).values() == (std::vector<double>{102, 104}));
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  Tensors<double> t({9, 3, 4});
  t.ids.fill([](std::size_t i) { return static_cast<std::int32_t>(i % 3); });
  t.dweight.fill([](std::size_t) { return 0; });
  std::mt19937 generator(7);
  const auto direction = TestTensor<Exec, double>({3, 4}).random(generator).read<double>().values();
  const auto weight = t.weight.read<double>().values(), dy = t.dy.read<double>().values();
  auto loss = [&](double h) {
    t.weight.fill([&](std::size_t i) { return weight[i] + h * direction[i]; });
    embedding_forward(Exec(), t.ids.view<1>(), t.weight.view<2>(), t.y.view<2>());
    Exec().fence("kformer::Testing::embedding");
    return dot(t.y.read<double>().values(), dy);
  };
  embedding_backward(Exec(), t.ids.view<1>(), t.dy.view<2>(), t.dweight.view<2>());
  Exec().fence("kformer::Testing::embedding");
  check_gradient("weight", loss, dot(t.dweight.read<double>().values(), direction));
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  TestTensor<Exec, std::int32_t> ids({3});
  TestTensor<Exec, bf16> weight({9, 5}), y({3, 5}), narrow({3, 4});
  TestTensor<Exec, float> dweight({9, 5}), floats({3});
  check_error<DimensionMismatch>(
      [&] { embedding_forward(Exec(), ids.view<1>(), weight.view<2>(), narrow.view<2>()); },
      "kformer::embedding_forward: extents do not match: ids[3] weight[9,5] y[3,4]; expected y to have one row "
      "per id "
      "and the columns of weight");
  check_error<DimensionMismatch>(
      [&] { Impl::EmbeddingForward{floats.ref(), weight.ref(), y.ref()}.check(); },
      "kformer::embedding_forward: ids is stored as f32, expected i32: ids[3] weight[9,5] y[3,5]");
  check_error<DimensionMismatch>(
      [&] { embedding_backward(Exec(), ids.view<1>(), narrow.view<2>(), dweight.view<2>()); },
      "kformer::embedding_backward: extents do not match: ids[3] dy[3,4] dweight[9,5]; expected dy to have one "
      "row per "
      "id and the columns of dweight");
  check_error<DimensionMismatch>(
      [&] { Impl::EmbeddingBackward{ids.ref(), y.ref(), weight.ref()}.check(); },
      "kformer::embedding_backward: dweight is stored as bf16, expected f32: ids[3] dy[3,5] dweight[9,5]");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
