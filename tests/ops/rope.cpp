// SPDX-License-Identifier: MIT
#include "kformer/ops/rope.hpp"

#include "ops/rope_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"

namespace kformer::Testing {
using namespace rope_cases;

BOOST_AUTO_TEST_SUITE(rope)

constexpr RopeScaling llama3{RopeType::llama3, 8, 1, 4, 8192};

// Halves of a head of whole vectors, of several, and with a part of one; tokens in one piece of work and in
// several.
const std::vector<Shape> shapes{{1, 1, 1, 1, 2},   {2, 7, 8, 2, 6},  {3, 5, 4, 1, 66},  {2, 3, 2, 2, 64},
                                {1, 4, 3, 1, 30},  {1, 3, 2, 1, 34}, {2, 3, 2, 1, 250}, {2, 21, 6, 2, 80},
                                {3, 53, 5, 1, 22}, {0, 3, 2, 1, 8},  {2, 0, 2, 1, 8},   {2, 3, 0, 1, 8},
                                {2, 3, 2, 0, 8},   {2, 3, 2, 1, 0}};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes) test_rotation<Impl::RopeForward, T>(shape, +1, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes) test_rotation<Impl::RopeBackward, T>(shape, -1, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const Shape shape{draw.any(1, 3), draw.any(1, 12), draw.any(1, 5), draw.any(1, 2), 2 * draw.any(1, 70)};
    test_rotation<Impl::RopeForward, T>(shape, +1, draw.rows(), every_kernel, draw.seed());
    test_rotation<Impl::RopeBackward, T>(shape, -1, draw.rows(), every_kernel, draw.seed());
  });
}

using TableScalars = std::tuple<float, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(tables_match_the_oracle_to_position_100000, C, TableScalars) {
  struct Case {
    std::int64_t positions, half;
    RopeOptions options;
  };
  const std::vector<Case> cases{
      {100001, 3, {}}, {33, 64, {.theta = 500000, .scaling = llama3}}, {1, 1, {}}, {0, 8, {}}, {5, 0, {}}};
  for (const auto& [positions, half, options] : cases) {
    TestTensor<Exec, C> cos({positions, half}), sin({positions, half});
    const auto expected = ref::rope_tables<oracle_t<C>, oracle_t<C>>(positions, half, options);
    const auto naive = ref::rope_tables<naive_t<double>, C>(positions, half, options);
    test_every_kernel(Impl::RopeTables{cos.ref(), sin.ref(), options}, {&cos, &sin}, [&](const std::string&) {
      check_close("cos", cos, expected.cos, naive.cos);
      check_close("sin", sin, expected.sin, naive.sin);
    });
  }
}

BOOST_AUTO_TEST_CASE(frequencies_of_llama_3_1) {
  // Hugging Face transformers, _compute_llama3_parameters, for Llama 3.1 8B: head_dim 128, theta 500000.
  const RopeOptions options{.theta = 500000, .scaling = llama3};
  const std::vector<std::pair<int, double>> published{
      {0, 1.0},
      {10, 0.12868737343265052},    // kept
      {28, 0.003211445994752591},   // kept
      {29, 0.002166570763503359},   // blended
      {32, 0.0005248461609929547},  // blended
      {34, 0.0001785078127679964},  // blended
      {35, 9.556212353964683e-05},  // divided by 8
      {40, 3.428102195952591e-05},
  };
  for (const auto& [i, frequency] : published)
    BOOST_TEST(ref::rope_frequency<double>(i, 64, options) == frequency, boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  // One pair rotated by 90 degrees, another by 180; the third value of each layout tells which pair is which.
  HostTensor<double> x({1, 1, 1, 4}), cos({1, 2}), sin({1, 2});
  for (int i = 0; i < 4; ++i) x(0, 0, 0, i) = i + 1;
  cos(0, 0) = 0;
  sin(0, 0) = 1;
  cos(0, 1) = -1;
  sin(0, 1) = 0;
  auto rotate = [&](RopeLayout layout, int direction) {
    return ref::rope_rotate<double, double>(x, cos, sin, {}, 0, layout, direction).values();
  };
  BOOST_TEST(rotate(RopeLayout::half_split, +1) == (std::vector<double>{-3, -2, 1, -4}));
  BOOST_TEST(rotate(RopeLayout::interleaved, +1) == (std::vector<double>{-2, 1, -3, -4}));
  BOOST_TEST(rotate(RopeLayout::half_split, -1) == (std::vector<double>{3, -2, -1, -4}));
  const auto tables = ref::rope_tables<double, double>(4, 2, {.theta = 100});
  BOOST_TEST(tables.cos(3, 0) == std::cos(3.0));
  BOOST_TEST(tables.sin(3, 1) == std::sin(0.3), boost::test_tools::tolerance(1e-15));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_undoes_forward, T, Scalars) {
  for (const auto layout : {RopeLayout::half_split, RopeLayout::interleaved}) {
    Tensors<T> t({2, 7, 3, 1, 10}, Positions::arbitrary);
    const auto x = t.q.template read<oracle_t<T>>();
    const auto naive = t.template rotated<naive_t<T>, T>(
        t.template rotated<naive_t<T>, T>(t.q.template read<naive_t<T>>(), layout, +1), layout, -1);
    const auto q = t.q.template view<4>(), k = t.k.template view<4>();
    const auto cos = t.cos.template view<2>(), sin = t.sin.template view<2>();
    const auto positions = t.positions.template view<2>();
    rope_forward(Exec(), q, k, cos, sin, positions, layout);
    rope_backward(Exec(), q, k, cos, sin, positions, layout);
    Exec().fence("kformer::Testing::rope");
    check_close("q", t.q, x, naive);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_position_outside_the_table_gives_nan_in_its_row_only, T, Scalars) {
  test_positions_outside<T>(6, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE(consecutive_positions_start_where_they_are_told) {
  Tensors<float> consecutive({2, 5, 2, 1, 8}, Positions::consecutive);
  Tensors<float> listed({2, 5, 2, 1, 8}, Positions::shared);
  const auto x = consecutive.q.read<float>().values();
  listed.q = TestTensor<Exec, float>({2, 5, 2, 8}).fill([&](std::size_t i) { return x[i]; });
  listed.positions.fill([](std::size_t s) { return static_cast<std::int32_t>(11 + s); });
  rope_forward(Exec(), consecutive.q.view<4>(), consecutive.k.view<4>(), consecutive.cos.view<2>(),
               consecutive.sin.view<2>(), 11);
  rope_forward(Exec(), listed.q.view<4>(), listed.k.view<4>(), listed.cos.view<2>(), listed.sin.view<2>(),
               listed.positions.view<2>());
  Exec().fence("kformer::Testing::rope");
  BOOST_TEST((consecutive.q.bits() == listed.q.bits()));
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  const Shape shape{2, 5, 3, 2, 8};
  for (const auto layout : {RopeLayout::half_split, RopeLayout::interleaved}) {
    Tensors<double> t(shape, Positions::arbitrary), direction(shape, Positions::arbitrary);
    std::mt19937 generator(7);
    direction.q.random(generator);
    direction.k.random(generator);
    Tensors<double> gradient(shape, Positions::arbitrary);
    gradient.q.random(generator);
    gradient.k.random(generator);
    const auto positions = t.positions.view<2>();
    const auto q0 = t.q.read<double>().values(), k0 = t.k.read<double>().values();
    const auto q1 = direction.q.read<double>().values(), k1 = direction.k.read<double>().values();
    const auto dq = gradient.q.read<double>().values(), dk = gradient.k.read<double>().values();
    auto loss = [&](double h) {
      t.q.fill([&](std::size_t i) { return q0[i] + h * q1[i]; });
      t.k.fill([&](std::size_t i) { return k0[i] + h * k1[i]; });
      rope_forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.cos.view<2>(), t.sin.view<2>(), positions, layout);
      Exec().fence("kformer::Testing::rope");
      return dot(t.q.read<double>().values(), dq) + dot(t.k.read<double>().values(), dk);
    };
    rope_backward(Exec(), gradient.q.view<4>(), gradient.k.view<4>(), t.cos.view<2>(), t.sin.view<2>(),
                  positions, layout);
    Exec().fence("kformer::Testing::rope");
    check_gradient("q, k", loss,
                   dot(gradient.q.read<double>().values(), q1) + dot(gradient.k.read<double>().values(), k1));
  }
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  TestTensor<Exec, float> q({1, 3, 4, 6}), k({1, 3, 2, 6}), cos({9, 3}), sin({9, 3});
  auto forward = [&](const auto& queries, const auto& keys, const auto& cosines, const auto& sines) {
    rope_forward(Exec(), queries.template view<4>(), keys.template view<4>(), cosines.template view<2>(),
                 sines.template view<2>());
  };
  check_error<DimensionMismatch>([&] { forward(q, TestTensor<Exec, float>({2, 3, 2, 6}), cos, sin); },
                                 "kformer::rope_forward: extents do not match: q[1,3,4,6] k[2,3,2,6] cos[9,3] "
                                 "sin[9,3]; expected k to have the "
                                 "extents of q except for the heads");
  check_error<DimensionMismatch>(
      [&] { forward(TestTensor<Exec, float>({1, 3, 4, 7}), TestTensor<Exec, float>({1, 3, 2, 7}), cos, sin); },
      "kformer::rope_forward: extents do not match: q[1,3,4,7] k[1,3,2,7] cos[9,3] sin[9,3]; expected an even "
      "head_dim, because components are rotated in pairs");
  check_error<DimensionMismatch>([&] { forward(q, k, TestTensor<Exec, float>({9, 6}), sin); },
                                 "kformer::rope_forward: extents do not match: q[1,3,4,6] k[1,3,2,6] cos[9,6] "
                                 "sin[9,3]; expected cos and sin to "
                                 "have one row per position and head_dim / 2 columns");
  check_error<DimensionMismatch>(
      [&] {
        const TestTensor<Exec, double> sin64({9, 3});
        Impl::RopeForward{{q.ref(), k.ref(), cos.ref(), sin64.ref(), {}, 0, RopeLayout::half_split}}.check();
      },
      "kformer::rope_forward: sin is stored as f64, expected f32: q[1,3,4,6] k[1,3,2,6] cos[9,3] sin[9,3]");
  TestTensor<Exec, std::int32_t> positions({2, 3});
  check_error<DimensionMismatch>(
      [&] {
        rope_backward(Exec(), q.view<4>(), k.view<4>(), cos.view<2>(), sin.view<2>(), positions.view<2>());
      },
      "kformer::rope_backward: extents do not match: dq[1,3,4,6] dk[1,3,2,6] cos[9,3] sin[9,3] positions[2,3]; "
      "expected positions to have the batch (or 1) and seq of dq");
}

BOOST_AUTO_TEST_CASE(errors_of_the_tables) {
  TestTensor<Exec, float> cos({9, 3}), sin({9, 3});
  TestTensor<Exec, bf16> cos16({9, 3});
  auto tables = [&](RopeOptions options) { rope_tables(Exec(), cos.view<2>(), sin.view<2>(), options); };
  check_error<DimensionMismatch>(
      [&] { Impl::RopeTables{cos16.ref(), sin.ref(), {}}.check(); },
      "kformer::rope_tables: cos is stored as bf16, expected f32: cos[9,3] sin[9,3]");
  check_error<NotSupported>([&] { tables({.theta = 0}); },
                            "kformer::rope_tables: theta must be positive, got 0.000000");
  check_error<NotSupported>([&] { tables({.scaling = {.rope_type = RopeType::llama3, .factor = 0}}); },
                            "kformer::rope_tables: scaling.factor must be positive, got 0.000000");
  check_error<NotSupported>([&] { tables({.scaling = {RopeType::llama3, 8, 4, 1, 8192}}); },
                            "kformer::rope_tables: scaling needs 0 < low_freq_factor < high_freq_factor, got "
                            "4.000000 and 1.000000");
  check_error<NotSupported>([&] { tables({.scaling = {RopeType::llama3, 8, 0, 4, 8192}}); },
                            "kformer::rope_tables: scaling needs 0 < low_freq_factor < high_freq_factor, got "
                            "0.000000 and 4.000000");
  check_error<NotSupported>(
      [&] { tables({.scaling = {RopeType::llama3, 8, 1, 4, 0}}); },
      "kformer::rope_tables: scaling.original_max_position_embeddings must be positive, got 0");
  const std::string unnamed = " has the value 7, which its type does not name; choose one of: ";
  check_error<NotSupported>([&] { tables({.scaling = {.rope_type = static_cast<RopeType>(7)}}); },
                            "kformer::rope_tables: scaling.rope_type" + unnamed + "none, llama3");
  const TestTensor<Exec, float> heads({1, 9, 1, 6}), keys({1, 9, 1, 6});
  check_error<NotSupported>(
      [&] {
        rope_forward(Exec(), heads.view<4>(), keys.view<4>(), cos.view<2>(), sin.view<2>(), 0,
                     static_cast<RopeLayout>(7));
      },
      "kformer::rope_forward: layout" + unnamed + "half_split, interleaved");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
