// SPDX-License-Identifier: MIT
#include "kformer/ops/cross_entropy.hpp"

#include "ops/cross_entropy_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(cross_entropy)

CrossEntropyKernels every_kernel() {
  return {kernels<Impl::CrossEntropyForward, Exec>(), kernels<Impl::CrossEntropyBackward, Exec>()};
}

const std::vector<CrossEntropyShape> short_rows{{20, 1},  {20, 5},   {20, 15}, {20, 17},
                                                {20, 33}, {75, 113}, {0, 8}};
const std::vector<CrossEntropyShape> long_rows{{10, 1025}, {10, 2048}, {10, 4131}, {40, 3203}};

BOOST_AUTO_TEST_CASE_TEMPLATE(kernels_match_the_oracle, T, Scalars) {
  for (const CrossEntropyOptions& options : option_sets) check_shapes<T>(short_rows, options, every_kernel());
  for (const CrossEntropyOptions& options : {option_sets.front(), option_sets.back()})
    check_shapes<T>(long_rows, options, every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const auto options = draw.one_of(option_sets);
    const bool capped = options.softcap > 0;
    CrossEntropyTensors<T> t({draw.any(1, 30), draw.any(capped ? 2 : 1, draw.one_in(8) ? 1500 : 150)},
                             draw.one_of(capped ? scales_below_the_cap : scales), draw.seed());
    t.options = options;
    check_against_the_oracle(t, every_kernel());
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rising_logits_after_impossible_tokens_match_the_oracle, T, Scalars) {
  check_rising_logits_after_impossible_tokens_match_the_oracle<T>(every_kernel());
}

// Kernels may treat long stretches of a row by the size of their logits: here small, only negative, large.
BOOST_AUTO_TEST_CASE_TEMPLATE(stretches_of_any_size_match_the_oracle, T, Scalars) {
  constexpr std::size_t columns = 9000, stretch = 4096;
  for (const double large : {40.0, 300.0, -300.0}) {
    CrossEntropyTensors<T> t({10, columns});
    const auto noise = t.logits.template read<double>().values();
    t.logits.fill([&](std::size_t i) {
      const double x[] = {noise[i], -20 - std::abs(noise[i]), large + noise[i]};
      return T(static_cast<compute_t<T>>(x[std::min<std::size_t>(i % columns / stretch, 2)]));
    });
    BOOST_TEST_CONTEXT("large logits of about " << large) { check_against_the_oracle(t, every_kernel()); }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(exponentials_of_16_bits_are_rounded_once, T, Halves) {
  check_exponentials_of_16_bits_are_rounded_once<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ignored_rows_are_zero_whatever_they_hold, T, Scalars) {
  check_ignored_rows_are_zero_whatever_they_hold<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_invalid_target_gives_nan_in_its_row_only, T, Scalars) {
  check_an_invalid_target_gives_nan_in_its_row_only<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(minus_infinity_is_an_impossible_token, T, Scalars) {
  check_minus_infinity_is_an_impossible_token<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(smoothing_makes_a_row_with_an_impossible_token_infinite, T, Scalars) {
  check_smoothing_makes_a_row_with_an_impossible_token_infinite<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_soft_cap_bounds_any_logit, T, Scalars) {
  check_a_soft_cap_bounds_any_logit<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_nan_among_the_logits_gives_a_nan_loss, T, Scalars) {
  check_a_nan_among_the_logits_gives_a_nan_loss<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dlogits_may_be_logits, T, Scalars) {
  CrossEntropyTensors<T> apart({5, 33}), t({5, 33});
  const auto& options = option_sets.back();
  auto run = [&](const CrossEntropyTensors<T>& x, const TestTensor<Exec, T>& dlogits) {
    const auto logits = x.logits.template view<2>();
    const auto targets = x.targets.template view<1>();
    const auto lse = x.lse.template view<1>();
    cross_entropy_forward(Exec(), logits, targets, x.loss.template view<1>(), lse, options);
    cross_entropy_backward(Exec(), logits, targets, lse, x.dloss.template view<1>(), dlogits.template view<2>(),
                           options);
    Exec().fence("kformer::Testing::cross_entropy");
  };
  run(apart, apart.dlogits);
  run(t, t.logits);
  BOOST_TEST((t.logits.bits() == apart.dlogits.bits()));
}

BOOST_AUTO_TEST_CASE(a_token_may_be_the_one_to_ignore) {
  CrossEntropyTensors<double> t({2, 3});
  t.targets.fill([](std::size_t i) { return i == 0 ? 2 : 1; });
  cross_entropy_forward(Exec(), t.logits.view<2>(), t.targets.view<1>(), t.loss.view<1>(), t.lse.view<1>(),
                        {.ignore_index = 2});
  cross_entropy_backward(Exec(), t.logits.view<2>(), t.targets.view<1>(), t.lse.view<1>(), t.dloss.view<1>(),
                         t.dlogits.view<2>(), {.ignore_index = 2});
  Exec().fence("kformer::Testing::cross_entropy");
  BOOST_TEST(t.loss.read<double>()(0) == 0);
  BOOST_TEST(t.loss.read<double>()(1) > 0);
  BOOST_TEST(t.dlogits.read<double>()(0, 2) == 0);
  BOOST_TEST(t.dlogits.read<double>()(1, 1) != 0);
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  HostTensor<double> logits({2, 2}), targets({2}), dloss({2}, 8.0);
  logits(0, 0) = std::log(3.0);  // probabilities 3/4, 1/4
  targets(1) = ignored;
  const auto close = boost::test_tools::tolerance(1e-14);
  const auto r = ref::cross_entropy_forward<double>(logits, targets, {});
  BOOST_TEST(r.lse(0) == std::log(4.0), close);
  BOOST_TEST(r.loss(0) == std::log(4.0 / 3), close);
  BOOST_TEST(r.loss(1) == 0);
  const auto d = ref::cross_entropy_backward<double, double>(logits, targets, r.lse, dloss, {});
  BOOST_TEST(d(0, 0) == -2, close);
  BOOST_TEST(d(0, 1) == 2, close);
  BOOST_TEST(d(1, 0) == 0);

  // The target has 3/4 of the distribution, so smoothing by 1/2 makes it the softmax itself.
  const CrossEntropyOptions smooth{.label_smoothing = 0.5, .z_loss = 2};
  const auto s = ref::cross_entropy_forward<double>(logits, targets, smooth);
  const double entropy = std::log(4.0) - 0.75 * std::log(3.0);
  BOOST_TEST(s.loss(0) == entropy + 2 * std::log(4.0) * std::log(4.0), close);
  BOOST_TEST(s.loss(1) == 0);
  const auto e = ref::cross_entropy_backward<double, double>(logits, targets, s.lse, dloss, smooth);
  BOOST_TEST(e(0, 0) == 0.75 * 4 * std::log(4.0) * 8, close);
  BOOST_TEST(e(0, 1) == 0.25 * 4 * std::log(4.0) * 8, close);

  // tanh(ln 3) = 4/5, and its slope 9/25: the cap 1/(4/5) leaves logits of 1 and 0.
  logits(0, 0) = 1.25 * std::log(3.0);
  const CrossEntropyOptions capped{.softcap = 1.25};
  const auto c = ref::cross_entropy_forward<double>(logits, targets, capped);
  BOOST_TEST(c.lse(0) == std::log(std::exp(1.0) + 1), close);
  const auto f = ref::cross_entropy_backward<double, double>(logits, targets, c.lse, dloss, capped);
  BOOST_TEST(f(0, 0) == -8 * 0.36 / (std::exp(1.0) + 1), close);
  BOOST_TEST(f(0, 1) == 8 / (std::exp(1.0) + 1), close);
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  for (const CrossEntropyOptions& options : option_sets) {
    CrossEntropyTensors<double> t({5, 7});
    std::mt19937 generator(7);
    const auto direction = TestTensor<Exec, double>({5, 7}).random(generator).read<double>().values();
    const auto logits = t.logits.read<double>().values(), dloss = t.dloss.read<double>().values();
    auto loss = [&](double h) {
      t.logits.fill([&](std::size_t i) { return logits[i] + h * direction[i]; });
      cross_entropy_forward(Exec(), t.logits.view<2>(), t.targets.view<1>(), t.loss.view<1>(), t.lse.view<1>(),
                            options);
      Exec().fence("kformer::Testing::cross_entropy");
      return dot(t.loss.read<double>().values(), dloss);
    };
    loss(0);
    cross_entropy_backward(Exec(), t.logits.view<2>(), t.targets.view<1>(), t.lse.view<1>(), t.dloss.view<1>(),
                           t.dlogits.view<2>(), options);
    Exec().fence("kformer::Testing::cross_entropy");
    check_gradient("logits, " + describe(options), loss, dot(t.dlogits.read<double>().values(), direction));
  }
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  CrossEntropyTensors<float> t({3, 5});
  const auto forward = [&](const CrossEntropyOptions& options) {
    cross_entropy_forward(Exec(), t.logits.view<2>(), t.targets.view<1>(), t.loss.view<1>(), t.lse.view<1>(),
                          options);
  };
  const auto backward = [&](const CrossEntropyOptions& options) {
    cross_entropy_backward(Exec(), t.logits.view<2>(), t.targets.view<1>(), t.lse.view<1>(), t.dloss.view<1>(),
                           t.dlogits.view<2>(), options);
  };
  check_error<NotSupported>(
      [&] { forward({.label_smoothing = 1}); },
      "kformer::cross_entropy_forward: label_smoothing must be at least 0 and below 1, got 1.000000");
  check_error<NotSupported>([&] { forward({.z_loss = -1}); },
                            "kformer::cross_entropy_forward: z_loss must not be negative, got -1.000000");
  check_error<NotSupported>(
      [&] { backward({.label_smoothing = -0.5}); },
      "kformer::cross_entropy_backward: label_smoothing must be at least 0 and below 1, got -0.500000");
  check_error<NotSupported>(
      [&] { backward({.softcap = -30}); },
      "kformer::cross_entropy_backward: softcap must be finite and not negative, got -30.000000");
  check_error<NotSupported>([&] { forward({.softcap = std::numeric_limits<double>::infinity()}); },
                            "kformer::cross_entropy_forward: softcap must be finite and not negative, got inf");
  check_error<NotSupported>(
      [&] { backward({.softcap = std::numeric_limits<double>::quiet_NaN()}); },
      "kformer::cross_entropy_backward: softcap must be finite and not negative, got nan");
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  CrossEntropyTensors<bf16> t({3, 5});
  TestTensor<Exec, float> four({4});
  TestTensor<Exec, bf16> rows16({3}), narrow({3, 4});
  const auto logits = t.logits.view<2>();
  const auto targets = t.targets.view<1>();
  const auto per_row = t.loss.view<1>();
  check_error<DimensionMismatch>(
      [&] { cross_entropy_forward(Exec(), logits, targets, four.view<1>(), per_row); },
      "kformer::cross_entropy_forward: extents do not match: logits[3,5] targets[3] loss[4] lse[3]; expected "
      "targets, "
      "loss and lse to have one element per row of logits");
  check_error<DimensionMismatch>(
      [&] { Impl::CrossEntropyForward{t.logits.ref(), t.loss.ref(), t.loss.ref(), t.loss.ref(), {}}.check(); },
      "kformer::cross_entropy_forward: targets is stored as f32, expected i32: "
      "logits[3,5] targets[3] loss[3] lse[3]");
  check_error<DimensionMismatch>(
      [&] {
        Impl::CrossEntropyBackward{t.logits.ref(), t.targets.ref(), rows16.ref(),
                                   t.loss.ref(),   t.logits.ref(),  {}}
            .check();
      },
      "kformer::cross_entropy_backward: lse is stored as bf16, expected f32: logits[3,5] targets[3] lse[3] "
      "dloss[3] "
      "dlogits[3,5]");
  check_error<DimensionMismatch>(
      [&] { cross_entropy_backward(Exec(), logits, targets, per_row, per_row, narrow.view<2>()); },
      "kformer::cross_entropy_backward: extents do not match: logits[3,5] targets[3] lse[3] dloss[3] "
      "dlogits[3,4]; "
      "expected dlogits to have the extents of logits");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
