// SPDX-License-Identifier: MIT
#include "kformer/ops/linear_epilogues.hpp"

#include "ops/rope/reference.hpp"
#include "ops/swiglu/reference.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/read_operand.hpp"
#include "support/references.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(linear_epilogues)

constexpr Rows both_rows[] = {Rows::strided, Rows::packed};
// A kernel without it has large errors.
constexpr double scale = -0.75;

template <class Real>
HostTensor<Real> columns(const HostTensor<Real>& x, std::int64_t first, std::int64_t count) {
  HostTensor<Real> part({x.extent(0), count});
  for (std::int64_t r = 0; r < x.extent(0); ++r)
    for (std::int64_t c = 0; c < count; ++c) part(r, c) = x(r, first + c);
  return part;
}

BOOST_AUTO_TEST_CASE_TEMPLATE(swiglu_matches_the_oracle, T, Scalars) {
  struct Shape {
    std::int64_t rows, in, intermediate;
  };
  // Few rows, and several tiles either way with parts of tiles at their ends; one with several steps of the sum.
  for (const Shape s : {Shape{1, 3, 1},
                        {5, 33, 70},
                        {32, 64, 160},
                        {300, 40, 170},
                        {70, 600, 100},
                        {0, 4, 5},
                        {4, 0, 3},
                        {3, 4, 0}})
    for (const Rows rows : both_rows) {
      std::mt19937 generator(20260401);
      const auto x = TestTensor<Exec, T>({s.rows, s.in}, rows).random(generator);
      const auto weight = TestTensor<Exec, T>({2 * s.intermediate, s.in}, rows).random(generator, 0.5);
      TestTensor<Exec, T> gate_up({s.rows, 2 * s.intermediate}, rows), product({s.rows, s.intermediate}, rows);
      auto forward = [&]<class Real, class Store>() {
        auto sums = ref::linear_forward<Real, Store>(x.template read<Real>(), weight.template read<Real>(), {},
                                                     {}, Real(scale));
        auto result = ref::swiglu_forward<Real, Store>(columns(sums, 0, s.intermediate),
                                                       columns(sums, s.intermediate, s.intermediate));
        return std::pair(std::move(sums), std::move(result));
      };
      const auto naive = forward.template operator()<naive_t<T>, T>();
      const Impl::LinearSwigluForward problem{x.ref(), weight.ref(), gate_up.ref(), product.ref(), {scale}};
      problem.check();
      test_every_kernel(problem, {&gate_up, &product}, [&](const std::string&) {
        check_close("gate_up", gate_up, naive.first);
        check_close("product", product, naive.second);
      });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rope_matches_the_oracle, T, Scalars) {
  struct Shape {
    std::int64_t batch, seq, in, heads, head_dim, rest;
  };
  constexpr std::int64_t first_position = 3, table_rows = 140;
  for (const Shape s : {Shape{1, 1, 3, 1, 2, 0},
                        {2, 5, 33, 3, 10, 7},
                        {1, 130, 20, 5, 64, 64},
                        {3, 70, 24, 2, 128, 130},
                        {2, 35, 600, 3, 16, 30},
                        {2, 3, 8, 0, 4, 9},
                        {2, 3, 8, 2, 0, 9},
                        {0, 3, 8, 2, 4, 0}})
    for (const Rows rows : both_rows)
      for (const auto layout : {RopeLayout::half_split, RopeLayout::interleaved})
        for (const bool with_bias : {false, true}) {
          std::mt19937 generator(20260402);
          const std::int64_t out = s.heads * s.head_dim + s.rest, tokens = s.batch * s.seq;
          const auto x = TestTensor<Exec, T>({tokens, s.in}, rows).random(generator);
          const auto weight = TestTensor<Exec, T>({out, s.in}, rows).random(generator, 0.5);
          const auto bias = TestTensor<Exec, T>({out}).random(generator);
          TestTensor<Exec, T> y({tokens, out}, rows);
          const auto tables = ref::rope_tables<double, double>(table_rows, s.head_dim / 2, {});
          const auto table = [&](const HostTensor<double>& values) {
            return TestTensor<Exec, compute_t<T>>({table_rows, s.head_dim / 2}).fill([&](std::size_t i) {
              return values.values()[i];
            });
          };
          const auto cos = table(tables.cos), sin = table(tables.sin);
          Impl::LinearRopeForward problem{x.ref(),
                                          weight.ref(),
                                          {},
                                          y.ref(),
                                          cos.ref(),
                                          sin.ref(),
                                          {s.heads, s.seq, first_position, layout, {scale}}};
          if (with_bias) problem.bias = bias.ref();
          problem.check();
          auto forward = [&]<class Real, class Store>() {
            auto sums = ref::linear_forward<Real, Store>(x.template read<Real>(), weight.template read<Real>(),
                                                         read_operand<Real>(problem.bias), {}, Real(scale));
            HostTensor<Real> heads({s.batch, s.seq, s.heads, s.head_dim});
            const auto each = [&](auto f) {
              for (std::int64_t token = 0; token < tokens; ++token)
                for (std::int64_t c = 0; c < s.heads * s.head_dim; ++c)
                  f(sums(token, c), heads(token / s.seq, token % s.seq, c / s.head_dim, c % s.head_dim));
            };
            each([](const Real& sum, Real& head) { head = sum; });
            heads = ref::rope_rotate<Real, Store>(heads, cos.template read<Real>(), sin.template read<Real>(),
                                                  {}, first_position, layout, +1);
            each([](Real& sum, const Real& head) { sum = head; });
            return sums;
          };
          const auto naive = forward.template operator()<naive_t<T>, T>();
          test_every_kernel(problem, {&y}, [&](const std::string&) { check_close("y", y, naive); });
        }
}

// The product over the gate, as inference has it.
BOOST_AUTO_TEST_CASE(product_may_be_a_half_of_gate_up) {
  std::mt19937 generator(3);
  const std::int64_t rows = 70, in = 20, intermediate = 150;
  const auto x = TestTensor<Exec, float>({rows, in}).random(generator);
  const auto weight = TestTensor<Exec, float>({2 * intermediate, in}).random(generator);
  const TestTensor<Exec, float> gate_up({rows, 2 * intermediate}), product({rows, intermediate}),
      in_place({rows, 2 * intermediate});
  linear_swiglu_forward(Exec(), x.view<2>(), weight.view<2>(), gate_up.view<2>(), product.view<2>());
  const auto all = in_place.view<2>();
  for (const std::int64_t half : {0, 1}) {
    const std::pair<std::int64_t, std::int64_t> place(half * intermediate, (half + 1) * intermediate);
    linear_swiglu_forward(Exec(), x.view<2>(), weight.view<2>(), all, Kokkos::subview(all, Kokkos::ALL, place));
    Exec().fence("kformer::Testing::linear_epilogues");
    const auto found = columns(in_place.read<double>(), half * intermediate, intermediate);
    BOOST_TEST((found.values() == product.read<double>().values()));
  }
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  TestTensor<Exec, float> x({6, 5}), weight({8, 5}), gate_up({6, 8}), product({6, 3}), table({9, 2}),
      odd({9, 1});
  check_error<DimensionMismatch>(
      [&] {
        linear_swiglu_forward(Exec(), x.view<2>(), weight.view<2>(), gate_up.view<2>(), product.view<2>());
      },
      "kformer::linear_swiglu_forward: extents do not match: x[6,5] weight[8,5] gate_up[6,8] product[6,3]; "
      "expected weight to have two rows per column of product and one column per column of x");
  const auto rope = [&](const auto& cos, const auto& sin, LinearRopeOptions options) {
    linear_rope_forward(Exec(), x.view<2>(), weight.view<2>(), cos.template view<2>(), sin.template view<2>(),
                        gate_up.view<2>(), options);
  };
  check_error<DimensionMismatch>([&] { rope(table, odd, {1, 6}); },
                                 "kformer::linear_rope_forward: extents do not match: x[6,5] weight[8,5] "
                                 "cos[9,2] sin[9,1] y[6,8]; expected "
                                 "sin to have the extents of cos");
  check_error<NotSupported>([&] { rope(table, table, {3, 6}); },
                            "kformer::linear_rope_forward: 3 heads of 4 do not fit into the 8 columns of y");
  check_error<NotSupported>([&] { rope(table, table, {2, 4}); },
                            "kformer::linear_rope_forward: seq_len must divide the rows, got 4 and 6 rows");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
