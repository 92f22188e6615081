// SPDX-License-Identifier: MIT
#include "kformer/ops/linear_epilogues.hpp"

#include "ops/rope/reference.hpp"
#include "ops/swiglu/reference.hpp"
#include "support/draws.hpp"
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

struct SwigluShape {
  std::int64_t rows, in, intermediate;
};

template <class T>
void check_swiglu(SwigluShape s, Rows rows, unsigned seed) {
  std::mt19937 generator(seed);
  const auto x = TestTensor<Exec, T>({s.rows, s.in}, rows).random(generator);
  const auto weight = TestTensor<Exec, T>({2 * s.intermediate, s.in}, rows).random(generator, 0.5);
  TestTensor<Exec, T> gate_up({s.rows, 2 * s.intermediate}, rows), product({s.rows, s.intermediate}, rows);
  using Real = naive_t<T>;
  const auto sums =
      ref::linear_forward<Real, T>(x.template read<Real>(), weight.template read<Real>(), {}, {}, Real(scale));
  const auto naive = ref::swiglu_forward<Real, T>(columns(sums, 0, s.intermediate),
                                                  columns(sums, s.intermediate, s.intermediate));
  const Impl::LinearSwigluForward problem{x.ref(), weight.ref(), gate_up.ref(), product.ref(), {scale}};
  problem.check();
  test_every_kernel(problem, {&gate_up, &product}, [&](const std::string&) {
    check_close("gate_up", gate_up, sums);
    check_close("product", product, naive);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(swiglu_matches_the_oracle, T, Scalars) {
  // Few rows, and several tiles either way with parts of tiles at their ends; one with several steps of the sum.
  for (const SwigluShape s : {SwigluShape{1, 3, 1},
                              {5, 33, 70},
                              {32, 64, 160},
                              {300, 40, 170},
                              {70, 600, 100},
                              {0, 4, 5},
                              {4, 0, 3},
                              {3, 4, 0}})
    for (const Rows rows : both_rows) check_swiglu<T>(s, rows, 20260401);
}

struct RopeShape {
  std::int64_t batch, seq, in, heads, head_dim, rest;
};

template <class T>
void check_rope(RopeShape s, Rows rows, RopeLayout layout, bool with_bias, unsigned seed) {
  constexpr std::int64_t first_position = 3, table_rows = 140;
  std::mt19937 generator(seed);
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
  using Real = naive_t<T>;
  auto naive = ref::linear_forward<Real, T>(x.template read<Real>(), weight.template read<Real>(),
                                            read_operand<Real>(problem.bias), {}, Real(scale));
  HostTensor<Real> heads({s.batch, s.seq, s.heads, s.head_dim});
  const auto each = [&](auto f) {
    for (std::int64_t token = 0; token < tokens; ++token)
      for (std::int64_t c = 0; c < s.heads * s.head_dim; ++c)
        f(naive(token, c), heads(token / s.seq, token % s.seq, c / s.head_dim, c % s.head_dim));
  };
  each([](const Real& sum, Real& head) { head = sum; });
  heads = ref::rope_rotate<Real, T>(heads, cos.template read<Real>(), sin.template read<Real>(), {},
                                    first_position, layout, +1);
  each([](Real& sum, const Real& head) { sum = head; });
  test_every_kernel(problem, {&y}, [&](const std::string&) { check_close("y", y, naive); });
}

constexpr RopeLayout both_layouts[] = {RopeLayout::half_split, RopeLayout::interleaved};

BOOST_AUTO_TEST_CASE_TEMPLATE(rope_matches_the_oracle, T, Scalars) {
  for (const RopeShape s : {RopeShape{1, 1, 3, 1, 2, 0},
                            {2, 5, 33, 3, 10, 7},
                            {1, 130, 20, 5, 64, 64},
                            {3, 70, 24, 2, 128, 130},
                            {2, 35, 600, 3, 16, 30},
                            {2, 3, 8, 0, 4, 9},
                            {2, 3, 8, 2, 0, 9},
                            {0, 3, 8, 2, 4, 0}})
    for (const Rows rows : both_rows)
      for (const auto layout : both_layouts)
        for (const bool with_bias : {false, true}) check_rope<T>(s, rows, layout, with_bias, 20260402);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    check_swiglu<T>({draw.any(1, 40), draw.any(1, 120), draw.any(1, 60)}, draw.rows(), draw.seed());
    const RopeShape shape{draw.any(1, 2), draw.any(1, 30),     draw.any(1, 100),
                          draw.any(1, 4), 2 * draw.any(1, 20), draw.any(0, 30)};
    check_rope<T>(shape, draw.rows(), draw.one_of(both_layouts), draw.one_in(2), draw.seed());
  });
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
  check_error<NotSupported>([&] { rope(table, table, {2, 0}); },
                            "kformer::linear_rope_forward: seq_len must divide the rows, got 0 and 6 rows");
}

BOOST_AUTO_TEST_CASE(sequences_may_be_empty) {
  TestTensor<Exec, float> x({0, 5}), weight({8, 5}), y({0, 8}), table({9, 2});
  for (const std::int64_t seq_len : {0, 3})
    BOOST_CHECK_NO_THROW(linear_rope_forward(Exec(), x.view<2>(), weight.view<2>(), table.view<2>(),
                                             table.view<2>(), y.view<2>(), {.heads = 2, .seq_len = seq_len}));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
