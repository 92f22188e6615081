// SPDX-License-Identifier: MIT
#include "ops/lora_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"

namespace kformer::Testing {
using namespace lora_cases;

BOOST_AUTO_TEST_SUITE(lora)

constexpr Rows both_rows[] = {Rows::strided, Rows::packed};

const auto every_kernel = [](const auto& problem, const std::vector<Output*>& outputs, const auto& verify) {
  test_every_kernel(problem, outputs, verify);
};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const Case& c : cases)
    for (const Rows rows : both_rows)
      for (const Added added : every_added)
        if (belongs_to(rows, added, terms_of(c))) test_forward(Tensors<T>(c, rows), added, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_input_matches_the_oracle, T, Scalars) {
  for (const Case& c : cases)
    for (const Rows rows : both_rows) test_backward_input(Tensors<T>(c, rows), every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    Case c{draw.any(1, 40), draw.any(1, 100), 0, {}};
    for (std::int64_t parts = draw.any(1, 3); parts > 0; --parts) {
      const std::int64_t gap = draw.any(0, 9), columns = draw.any(1, 40);
      c.parts.push_back({c.out + gap, columns, draw.any(1, 20), draw.one_of(std::array{0.5, -1.5, 2.0})});
      c.out += gap + columns;
    }
    c.out += draw.any(0, 9);
    test_forward(Tensors<T>(c, draw.rows(), draw.seed()), draw.one_of(every_added), every_kernel);
    test_backward_input(Tensors<T>(c, draw.rows(), draw.seed()), every_kernel);
  });
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  using Values = std::vector<double>;
  HostTensor<double> x({1, 2}), weight({3, 2}), bias({3}), residual({1, 3}), a({3, 2}), dy({1, 3});
  x.values() = {3, 4};
  weight.values() = {1, 2, 5, 7, 0, 1};
  bias.values() = {100, 200, 300};
  residual.values() = {1000, 2000, 3000};
  a.values() = {1, 1, 2, 0, 0, 3};
  dy.values() = {10, 20, 30};
  std::vector<ref::LoraTensors<double>> parts{{HostTensor<double>({1, 1}), 0, 2.0},
                                              {HostTensor<double>({1, 2}), 2, 0.5}};
  parts[0].b.values() = {10};
  parts[1].b.values() = {1, -1};
  // x Wᵀ is (11, 43, 4), x Aᵀ is (7, 6, 12).
  const auto alone = ref::lora_forward<double, double>(x, weight, {}, {}, a, parts);
  BOOST_TEST((alone.low.values() == Values{14, 3, 6}));
  BOOST_TEST((alone.full.values() == Values{151, 43, 1}));
  BOOST_TEST((ref::lora_forward<double, double>(x, weight, bias, {}, a, parts).full.values() ==
              Values{251, 243, 301}));
  BOOST_TEST((ref::lora_forward<double, double>(x, weight, {}, residual, a, parts).full.values() ==
              Values{1151, 2043, 3001}));
  const auto backward = ref::lora_backward_input<double, double>(weight, a, parts, dy);
  BOOST_TEST((backward.low.values() == Values{200, 15, -15}));
  BOOST_TEST((backward.full.values() == Values{110 + 200 + 30, 190 + 200 - 45}));
}

// Loss Σ g·y along one direction in x, A and B at once, through the public functions on the portable kernels.
BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  ::setenv("KFORMER_KERNEL", "lora:kokkos,linear:kokkos", 1);
  const Case c{5, 7, 9, {{0, 3, 2, 1.5}, {4, 5, 3, -0.5}}};
  const Tensors<double> t(c, Rows::packed), direction(c, Rows::packed, 7);
  const auto values = [](const auto& tensor) { return tensor.template read<double>().values(); };
  const auto moved = [&](TestTensor<Exec, double> to, const auto& from, const auto& along, double h) {
    const auto f = values(from), d = values(along);
    to.fill([&](std::size_t i) { return f[i] + h * d[i]; });
    return to;
  };
  const auto forward = [](const Tensors<double>& at) {
    const std::array parts{LoraPart{at.b[0].view<2>(), at.c.parts[0].column, at.c.parts[0].scale},
                           LoraPart{at.b[1].view<2>(), at.c.parts[1].column, at.c.parts[1].scale}};
    lora_forward(Exec(), LoraForwardOperands{.x = at.x.view<2>(),
                                             .weight = at.weight.view<2>(),
                                             .a = at.a.view<2>(),
                                             .parts = parts,
                                             .xa = at.xa.view<2>(),
                                             .y = at.y.view<2>()});
    Exec().fence("kformer::Testing::lora");
    return parts;
  };
  const auto loss = [&](double h) {
    Tensors<double> at(c, Rows::packed);
    at.x = moved(at.x, t.x, direction.x, h);
    at.a = moved(at.a, t.a, direction.a, h);
    for (int i : {0, 1}) at.b[i] = moved(at.b[i], t.b[i], direction.b[i], h);
    forward(at);
    return dot(values(at.y), values(t.dy));
  };
  const auto parts = forward(t);
  lora_backward_input(Exec(), LoraBackwardInputOperands{.weight = t.weight.view<2>(),
                                                        .a = t.a.view<2>(),
                                                        .parts = parts,
                                                        .dy = t.dy.view<2>(),
                                                        .dxa = t.dxa.view<2>(),
                                                        .dx = t.dx.view<2>()});
  const auto zeros = [](std::int64_t m, std::int64_t n) {
    return TestTensor<Exec, double>({m, n}, Rows::packed).fill([](std::size_t) { return 0.0; });
  };
  const auto da = zeros(5, 7);
  linear_backward_weight(Exec(), t.x.view<2>(), t.dxa.view<2>(), da.view<2>());
  double slope = dot(values(t.dx), values(direction.x));
  for (std::size_t i = 0, row = 0; i < 2; ++i) {
    const Part& part = c.parts[i];
    const auto db = zeros(part.columns, part.rank);
    linear_backward_weight(
        Exec(), Kokkos::subview(t.xa.view<2>(), Kokkos::ALL, std::pair(row, row + part.rank)),
        Kokkos::subview(t.dy.view<2>(), Kokkos::ALL, std::pair(part.column, part.column + part.columns)),
        db.view<2>());
    Exec().fence("kformer::Testing::lora");
    slope += dot(values(db), values(direction.b[i]));
    row += static_cast<std::size_t>(part.rank);
  }
  slope += dot(values(da), values(direction.a));
  check_gradient("lora", loss, slope);
  ::unsetenv("KFORMER_KERNEL");
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  TestTensor<Exec, float> x({6, 5}), weight({8, 5}), a({3, 5}), b({4, 3}), xa({6, 3}), y({6, 8}), dx({6, 5});
  const auto forward = [&](std::int64_t column, double scale, const auto& low) {
    lora_forward(Exec(), LoraForwardOperands{.x = x.view<2>(),
                                             .weight = weight.view<2>(),
                                             .a = a.view<2>(),
                                             .parts = std::array{LoraPart{b.view<2>(), column, scale}},
                                             .xa = low.template view<2>(),
                                             .y = y.view<2>()});
  };
  const std::string operands = "x[6,5] weight[8,5] a[3,5] b[0][4,3] xa[6,3] y[6,8]";
  check_error<DimensionMismatch>(
      [&] { forward(5, 1, xa); },
      "kformer::lora_forward: extents do not match: " + operands +
          "; expected the parts to adapt columns of y in ascending order, without overlap");
  check_error<DimensionMismatch>(
      [&] { forward(-1, 1, xa); },
      "kformer::lora_forward: extents do not match: " + operands +
          "; expected the parts to adapt columns of y in ascending order, without overlap");
  check_error<DimensionMismatch>(
      [&] { forward(0, 1, dx); },
      "kformer::lora_forward: extents do not match: x[6,5] weight[8,5] a[3,5] "
      "b[0][4,3] xa[6,5] y[6,8]; expected xa to have the rows of x and one column per row "
      "of a");
  check_error<NotSupported>([&] { forward(0, std::numeric_limits<double>::infinity(), xa); },
                            "kformer::lora_forward: the scale of every part must be finite");
  check_error<DimensionMismatch>(
      [&] {
        lora_backward_input(Exec(), LoraBackwardInputOperands{.weight = weight.view<2>(),
                                                              .a = weight.view<2>(),
                                                              .parts = std::array{LoraPart{b.view<2>()}},
                                                              .dy = y.view<2>(),
                                                              .dxa = xa.view<2>(),
                                                              .dx = dx.view<2>()});
      },
      "kformer::lora_backward_input: extents do not match: weight[8,5] a[8,5] b[0][4,3] dy[6,8] dxa[6,3] "
      "dx[6,5]; "
      "expected a to have one row per rank of the parts, 3, and one column per column of weight");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
