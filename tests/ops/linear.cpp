// SPDX-License-Identifier: MIT
#include "kformer/ops/linear.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "ops/linear/openblas.hpp"
#include "ops/linear_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/read_operand.hpp"

namespace kformer::Testing {
using namespace linear_cases;

BOOST_AUTO_TEST_SUITE(linear)

// The larger ones cross the borders of the tiles and of the steps of the sum of every kernel; each extent of
// {70, 600, 100} and of {530, 70, 100} does so beside the others. Tiles of 96 and of 592
// columns have whole vectors alone, whose sums are stored as results.
const std::vector<Shape> shapes{{1, 1, 1},      {3, 5, 7},        {1, 113, 75},  {75, 1, 113}, {75, 113, 1},
                                {65, 129, 130}, {3, 1025, 5},     {70, 33, 300}, {17, 67, 99}, {32, 48, 34},
                                {300, 40, 53},  {0, 8, 3},        {4, 0, 3},     {4, 3, 0},    {3, 5, 7, 1},
                                {4, 9, 6, 3},   {33, 130, 65, 2}, {3, 5, 7, 0},  {0, 5, 7, 4}, {70, 600, 100},
                                {70, 100, 600}, {530, 70, 100},   {70, 600, 96}, {70, 96, 592}};
constexpr Rows both_rows[] = {Rows::strided, Rows::packed};

// Most with a scale: a kernel without it has large errors.
constexpr double scale_of(Added added) { return added == Added::nothing ? 1.0 : -0.75; }
constexpr double scale_of(Rows rows) { return rows == Rows::packed ? 0.625 : 1.0; }

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes)
    for (const Rows rows : both_rows)
      for (const Added added : every_added)
        if (belongs_to(rows, added, shape.rows * shape.in * shape.out))
          test_forward(Tensors<T>(shape, rows), added, scale_of(added), every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const Shape shape{draw.any(1, 40), draw.any(1, 120), draw.any(1, 40), draw.one_in(4) ? draw.any(1, 3) : -1};
    const auto tensors = [&] { return Tensors<T>(shape, draw.rows(), draw.seed()); };
    const auto scale = [&] { return draw.one_of(std::array{1.0, -0.75, 0.125}); };
    test_forward(tensors(), draw.one_of(every_added), scale(), every_kernel);
    test_backward_input(tensors(), scale(), every_kernel);
    test_backward_weight(tensors(), scale(), every_kernel);
  });
}

// Of a BLAS, acceptance.hpp knows nothing: one that refused everything would never be tested.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_blas_takes_what_it_can, T, Scalars) {
  for (const Rows rows : both_rows) {
    const auto check = [rows](const auto& problem, const auto&, const auto&) {
      using Problem = std::remove_cvref_t<decltype(problem)>;
      for (const auto& kernel : kernels<Problem, Exec>()) {
        const std::string name = kernel.name, refusal = kernel.reject(problem);
        // Threads may be more than a build of OpenBLAS can bear, which Serial does not have.
        const bool of_threads =
            std::string_view(Exec::name()) != "Serial" && refusal.find("OpenBLAS") != refusal.npos;
        if (name == "host_blas")
          BOOST_TEST((refusal.empty() || of_threads), Problem::function << ": " << refusal);
        if (name == "kokkos_blas" && rows == Rows::packed && sizeof(T) > 2)
          BOOST_TEST(refusal.empty(), Problem::function << ": " << refusal);
      }
    };
    const auto tensors = [&] { return Tensors<T>({70, 33, 30}, rows); };
    test_forward(tensors(), Added::nothing, 1.0, check);
    test_backward_input(tensors(), 1.0, check);
    test_backward_weight(tensors(), 1.0, check);
  }
}

// It counts in `int`, and its rows do not overlap.
BOOST_AUTO_TEST_CASE(a_blas_refuses_what_it_cannot_take) {
  const Tensors<float> t({4, 8, 3}, Rows::packed);
  const Impl::LinearForward problem{t.x.ref(), t.weight.ref(), {}, {}, t.y.ref()};
  for (const auto& kernel : kernels<Impl::LinearForward, Exec>()) {
    if (kernel.name != std::string("host_blas") || !kernel.reject(problem).empty()) continue;
    const auto with_stride = [&](TensorRef Impl::LinearForward::* operand, std::int64_t stride) {
      Impl::LinearForward changed = problem;
      (changed.*operand).stride[0] = stride;
      return kernel.reject(changed);
    };
    const std::string overlap = "rows overlap, which BLAS does not allow",
                      large = "an extent or stride of 2147483648 does not fit the int of BLAS";
    using P = Impl::LinearForward;
    for (const auto& [operand, columns] :
         {std::pair(&P::x, 8), std::pair(&P::weight, 8), std::pair(&P::y, 3)}) {
      BOOST_TEST(with_stride(operand, columns) == "");
      BOOST_TEST(with_stride(operand, columns - 1) == overlap);
      BOOST_TEST(with_stride(operand, std::numeric_limits<int>::max()) == "");
      BOOST_TEST(with_stride(operand, std::int64_t(1) << 31) == large);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_of_the_residual_have_a_distance_of_their_own, T, Scalars) {
  for (const Shape shape : {Shape{33, 70, 45}, Shape{3, 5, 7}, Shape{4, 9, 6, 3}})
    for (const Rows rows : both_rows) {
      const Rows others = rows == Rows::packed ? Rows::strided : Rows::packed;
      test_forward(Tensors<T>(shape, rows, others, 20261125), Added::residual, -0.75, every_kernel);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_input_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes)
    for (const Rows rows : both_rows)
      test_backward_input(Tensors<T>(shape, rows), scale_of(rows), every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_weight_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes)
    for (const Rows rows : both_rows)
      test_backward_weight(Tensors<T>(shape, rows), scale_of(rows), every_kernel);
}

BOOST_AUTO_TEST_CASE(one_weight_may_serve_a_batch) {
  std::mt19937 generator(5);
  const auto x = TestTensor<Exec, float>({3, 4, 6}).random(generator);
  const auto weight = TestTensor<Exec, float>({5, 6}, Rows::packed).random(generator);
  auto weights = weight.ref();
  weights.rank = 3;
  weights.extent = {3, 5, 6};
  weights.stride = {0, 6, 1};
  TestTensor<Exec, float> y({3, 4, 5});
  const auto forward = [&]<class Real, class Store>() {
    return ref::linear_forward<Real, Store>(x.read<Real>(), read_operand<Real>(weights), {}, {});
  };
  const auto expected = forward.operator()<double, double>();
  const auto naive = forward.operator()<float, float>();
  const Impl::LinearForward problem{x.ref(), weights, {}, {}, y.ref()};
  problem.check();
  test_every_kernel(problem, {&y}, [&](const std::string&) { check_close("y", y, expected, naive); });
}

// Integers have few enough bits for every product and sum to be exact; factors of 24 bits are rounded to 11.
BOOST_AUTO_TEST_CASE(tf32_rounds_factors_and_nothing_else) {
  std::mt19937 generator(7);
  for (const bool integers : {true, false}) {
    const Shape s{33, 70, 40};
    const auto make = [&](std::int64_t rows, std::int64_t cols) {
      TestTensor<Exec, float> t({rows, cols});
      return t.fill([&](std::size_t) {
        return integers ? std::uniform_int_distribution<int>(-9, 9)(generator)
                        : std::uniform_real_distribution<double>(0.5, 1)(generator);
      });
    };
    const auto x = make(s.rows, s.in), weight = make(s.out, s.in);
    TestTensor<Exec, float> y({s.rows, s.out});
    linear_forward(Exec(), x.template view<2>(), weight.template view<2>(), y.template view<2>(),
                   {.allow_tf32 = true});
    Exec().fence("kformer::Testing::linear");
    const auto expected =
        ref::linear_forward<double, double>(x.template read<double>(), weight.template read<double>(), {}, {});
    const auto found = y.template read<double>();
    // All terms are positive: two factors rounded or cut to 10 bits of fraction, and the sum in float.
    const double bound = integers ? 0 : 2 * 0x1p-10 + 0x1p-20 + 70 * 0x1p-24;
    for (std::size_t i = 0; i < expected.values().size(); ++i)
      BOOST_REQUIRE(std::abs(found.values()[i] - expected.values()[i]) <= bound * expected.values()[i]);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(bias_backward_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes) {
    if (shape.batch >= 0) continue;
    Tensors<T> t(shape);
    const auto naive = sum_of(ref::linear_backward_bias(t.dy.template read<naive_t<T>>()), t.dbias);
    const Impl::LinearBackwardBias problem{t.dy.ref(), t.dbias.ref()};
    problem.check();
    test_every_kernel(problem, {&t.dbias}, [&](const std::string&) { check_close("dbias", t.dbias, naive); });
  }
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  HostTensor<double> x({1, 2}), weight({2, 2}), bias({2}), residual({1, 2}), dy({1, 2});
  x.values() = {3, 4};
  weight.values() = {1, 2, 5, 7};
  bias.values() = {100, 200};
  residual.values() = {1000, 2000};
  dy.values() = {10, 20};
  using Values = std::vector<double>;
  BOOST_TEST((ref::linear_forward<double, double>(x, weight, {}, {}).values() == Values{11, 43}));
  BOOST_TEST((ref::linear_forward<double, double>(x, weight, bias, {}).values() == Values{111, 243}));
  BOOST_TEST((ref::linear_forward<double, double>(x, weight, {}, residual).values() == Values{1011, 2043}));
  BOOST_TEST((ref::linear_forward<double, double>(x, weight, bias, {}, 0.5).values() == Values{105.5, 221.5}));
  BOOST_TEST((ref::linear_backward_input<double, double>(weight, dy).values() == Values{110, 160}));
  BOOST_TEST((ref::linear_backward_weight(x, dy).values() == Values{30, 40, 60, 80}));
  BOOST_TEST((ref::linear_backward_bias(dy).values() == Values{10, 20}));
}

// Loss Σ g·y along one direction in x, weight, bias and residual at once, through the public functions on the
// portable kernels.
BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  ::setenv("KFORMER_KERNEL", "linear:kokkos", 1);
  const Shape shape{5, 7, 6};
  const Tensors<double> t(shape), direction(shape, Rows::strided, 7);
  auto values = [](const auto& tensor) { return tensor.template read<double>().values(); };
  auto moved = [&](const auto& from, const auto& along, double h) {
    const auto a = values(from), d = values(along);
    const auto& extent = from.ref().extent;
    TestTensor<Exec, double> result(
        std::vector<std::int64_t>(extent.begin(), extent.begin() + from.ref().rank));
    result.fill([&](std::size_t i) { return a[i] + h * d[i]; });
    return result;
  };
  auto zero = [](auto& tensor) { tensor.fill([](std::size_t) { return 0.0; }); };

  Tensors<double> g(shape);
  zero(g.dweight);
  zero(g.dbias);
  linear_backward(Exec(), t.x.view<2>(), t.weight.view<2>(), t.dy.view<2>(), g.dx.view<2>(),
                  g.dweight.view<2>());
  linear_backward_bias(Exec(), t.dy.view<2>(), g.dbias.view<1>());
  Exec().fence("kformer::Testing::linear");
  const double by_factors =
      dot(values(g.dx), values(direction.x)) + dot(values(g.dweight), values(direction.weight));

  auto loss = [&](Added added, double h) {
    const auto x = moved(t.x, direction.x, h), weight = moved(t.weight, direction.weight, h);
    const auto bias = moved(t.bias, direction.bias, h), residual = moved(t.residual, direction.residual, h);
    TestTensor<Exec, double> y({shape.rows, shape.out});
    if (added == Added::nothing) linear_forward(Exec(), x.view<2>(), weight.view<2>(), y.view<2>());
    if (added == Added::bias)
      linear_bias_forward(Exec(), x.view<2>(), weight.view<2>(), bias.view<1>(), y.view<2>());
    if (added == Added::residual)
      linear_residual_forward(Exec(), x.view<2>(), weight.view<2>(), residual.view<2>(), y.view<2>());
    Exec().fence("kformer::Testing::linear");
    return dot(values(y), values(t.dy));
  };
  check_gradient("x, weight", [&](double h) { return loss(Added::nothing, h); }, by_factors);
  check_gradient(
      "x, weight, bias", [&](double h) { return loss(Added::bias, h); },
      by_factors + dot(values(g.dbias), values(direction.bias)));
  check_gradient(
      "x, weight, residual", [&](double h) { return loss(Added::residual, h); },
      by_factors + dot(values(t.dy), values(direction.residual)));
  ::unsetenv("KFORMER_KERNEL");
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  TestTensor<Exec, float> x({3, 5}), weight({4, 5}), y({3, 4}), bias({5}), narrow({3, 3}), dweight({4, 5});
  TestTensor<Exec, bf16> half({3, 4});
  check_error<DimensionMismatch>(
      [&] { linear_forward(Exec(), x.view<2>(), y.view<2>(), y.view<2>()); },
      "kformer::linear_forward: extents do not match: x[3,5] weight[3,4] y[3,4]; expected weight to have one "
      "column per column of x");
  check_error<DimensionMismatch>(
      [&] { linear_forward(Exec(), x.view<2>(), weight.view<2>(), narrow.view<2>()); },
      "kformer::linear_forward: extents do not match: x[3,5] weight[4,5] y[3,3]; expected y to have the rows "
      "of x "
      "and one column per row of weight");
  check_error<DimensionMismatch>(
      [&] { Impl::LinearForward{x.ref(), weight.ref(), {}, {}, half.ref()}.check(); },
      "kformer::linear_forward: y is stored as bf16, expected f32: x[3,5] weight[4,5] y[3,4]");
  check_error<DimensionMismatch>(
      [&] { linear_bias_forward(Exec(), x.view<2>(), weight.view<2>(), bias.view<1>(), y.view<2>()); },
      "kformer::linear_bias_forward: extents do not match: x[3,5] weight[4,5] bias[5] y[3,4]; expected bias to "
      "have "
      "one element per row of weight");
  check_error<DimensionMismatch>(
      [&] { linear_residual_forward(Exec(), x.view<2>(), weight.view<2>(), narrow.view<2>(), y.view<2>()); },
      "kformer::linear_residual_forward: extents do not match: x[3,5] weight[4,5] residual[3,3] y[3,4]; "
      "expected "
      "residual to have the extents of y");
  check_error<DimensionMismatch>(
      [&] { linear_backward_input(Exec(), weight.view<2>(), x.view<2>(), x.view<2>()); },
      "kformer::linear_backward_input: extents do not match: weight[4,5] dy[3,5] dx[3,5]; expected dy to have "
      "one "
      "column per row of weight");
  check_error<DimensionMismatch>(
      [&] { linear_backward_input(Exec(), weight.view<2>(), y.view<2>(), y.view<2>()); },
      "kformer::linear_backward_input: extents do not match: weight[4,5] dy[3,4] dx[3,4]; expected dx to have "
      "the "
      "rows of dy and one column per column of weight");
  check_error<DimensionMismatch>(
      [&] { linear_backward_weight(Exec(), x.view<2>(), weight.view<2>(), weight.view<2>()); },
      "kformer::linear_backward_weight: extents do not match: x[3,5] dy[4,5] dweight[4,5]; expected dy to have "
      "the "
      "rows of x");
  check_error<DimensionMismatch>([&] { linear_backward_weight(Exec(), x.view<2>(), y.view<2>(), x.view<2>()); },
                                 "kformer::linear_backward_weight: extents do not match: x[3,5] dy[3,4] "
                                 "dweight[3,5]; expected dweight to have "
                                 "one row per column of dy and one column per column of x");
  check_error<DimensionMismatch>(
      [&] {
        linear_backward(Exec(), x.view<2>(), weight.view<2>(), y.view<2>(), y.view<2>(), dweight.view<2>());
      },
      "kformer::linear_backward: extents do not match: x[3,5] weight[4,5] dy[3,4] dx[3,4] dweight[4,5]; "
      "expected dx "
      "to have the rows of dy and one column per column of weight");
  TestTensor<Exec, float> xs({2, 3, 5}), weights({2, 4, 5}), ys({6, 3, 4}), residuals({2, 3, 3});
  check_error<DimensionMismatch>(
      [&] { linear_forward(Exec(), xs.view<3>(), weights.view<3>(), ys.view<3>()); },
      "kformer::linear_forward: extents do not match: x[2,3,5] weight[2,4,5] y[6,3,4]; expected all operands "
      "to be single matrices, or all batches of the same size");
  check_error<DimensionMismatch>(
      [&] { linear_forward(Exec(), xs.view<3>(), weight.view<2>(), ys.view<3>()); },
      "kformer::linear_forward: extents do not match: x[2,3,5] weight[4,5] y[6,3,4]; expected all operands "
      "to be single matrices, or all batches of the same size");
  check_error<DimensionMismatch>(
      [&] { linear_backward_weight(Exec(), xs.view<3>(), residuals.view<3>(), weights.view<3>()); },
      "kformer::linear_backward_weight: extents do not match: x[2,3,5] dy[2,3,3] dweight[2,4,5]; expected "
      "dweight to have one row per column of dy and one column per column of x");
  TestTensor<Exec, bf16> x16({3, 5}), dy16({3, 4}), dweight16({4, 5});
  check_error<DimensionMismatch>(
      [&] { Impl::LinearBackwardWeight{x16.ref(), dy16.ref(), dweight16.ref()}.check(); },
      "kformer::linear_backward_weight: dweight is stored as bf16, expected f32: x[3,5] dy[3,4] dweight[4,5]");
  check_error<NotSupported>(
      [&] { linear_forward(Exec(), x.view<2>(), weight.view<2>(), y.view<2>(), {.scale = INFINITY}); },
      "kformer::linear_forward: scale must be finite");
  check_error<DimensionMismatch>([&] { linear_backward_bias(Exec(), y.view<2>(), bias.view<1>()); },
                                 "kformer::linear_backward_bias: extents do not match: dy[3,4] dbias[5]; "
                                 "expected dbias to have one element "
                                 "per column of dy");
}

BOOST_AUTO_TEST_CASE(only_safe_builds_of_openblas_are_called_by_threads) {
  using Impl::concurrent_calls_refusal;
  const char* unsafe =
      "this single-threaded OpenBLAS computes wrong numbers when several threads call it; use its OpenMP "
      "build, or "
      "one built with USE_LOCKING=1 (0.3.28 or newer)";
  const char* threaded = "this OpenBLAS would start threads beside those of Kokkos; set OPENBLAS_NUM_THREADS=1";
  BOOST_TEST(concurrent_calls_refusal({"OpenBLAS 0.3.21 DYNAMIC_ARCH Zen SINGLE_THREADED", 0, 1}, true) ==
             unsafe);
  BOOST_TEST(concurrent_calls_refusal({"OpenBLAS 0.3.28 USE_LOCKING SINGLE_THREADED", 0, 1}, true) == "");
  BOOST_TEST(concurrent_calls_refusal({"OpenBLAS 0.3.21 Zen MAX_THREADS=64", 1, 8}, true) == threaded);
  BOOST_TEST(concurrent_calls_refusal({"OpenBLAS 0.3.21 Zen MAX_THREADS=64", 1, 1}, true) == "");
  BOOST_TEST(concurrent_calls_refusal({"OpenBLAS 0.3.21 USE_OPENMP MAX_THREADS=64", 2, 8}, true) == "");
  BOOST_TEST(concurrent_calls_refusal({"OpenBLAS 0.3.21 USE_OPENMP MAX_THREADS=64", 2, 8}, false) == threaded);
}

// Their order has no influence on what they accept.
BOOST_AUTO_TEST_CASE(pairs_of_bf16_come_first_where_their_instruction_is_fast) {
  const auto list = kernels<Impl::LinearForward, Exec>();
  const auto place = [&](std::string_view name) {
    return std::ranges::find_if(list, [&](const auto& kernel) { return kernel.name == name; }) - list.begin();
  };
  if (place("simd_avx512_bf16") == std::ssize(list)) return;  // a device
  std::ifstream file("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const bool slow = text.find("GenuineIntel") != text.npos;
  BOOST_TEST(place("simd_amx_bf16") == 0);
  BOOST_TEST(place("simd_avx512_bf16") == (slow ? 2 : 1));
  BOOST_TEST(place("simd_avx512") == (slow ? 1 : 2));
  BOOST_TEST(place("simd_avx2") == 3);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
