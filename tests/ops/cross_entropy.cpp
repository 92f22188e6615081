// SPDX-License-Identifier: MIT
#include "kformer/ops/cross_entropy.hpp"

#include "ops/cross_entropy/reference.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/gradient_check.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(cross_entropy)

struct Shape {
  std::int64_t rows, vocabulary;
};
// Few numbers may be right by luck; the rule needs more of them.
const std::vector<Shape> short_rows{{200, 1}, {200, 5}, {200, 15}, {200, 17}, {200, 33}, {75, 113}, {0, 8}};
const std::vector<Shape> long_rows{{40, 1025}, {40, 2048}, {40, 4131}, {100, 3203}};
constexpr std::int32_t ignored = -100;

/// Each option alone, and all of them.
const std::vector<CrossEntropyOptions> option_sets{{},
                                                   {.label_smoothing = 0.1},
                                                   {.z_loss = 1e-4},
                                                   {.softcap = 30},
                                                   {.label_smoothing = 0.25, .z_loss = 1e-2, .softcap = 30}};

std::string describe(const CrossEntropyOptions& options) {
  return "label smoothing " + std::to_string(options.label_smoothing) + ", z-loss " +
         std::to_string(options.z_loss) + ", soft cap " + std::to_string(options.softcap);
}

template <class T>
struct Tensors {
  TestTensor<Exec, T> logits, dlogits;
  TestTensor<Exec, std::int32_t> targets;
  TestTensor<Exec, compute_t<T>> loss, lse, dloss;
  CrossEntropyOptions options{.ignore_index = ignored};

  explicit Tensors(Shape s, double scale = 2.0) {
    std::mt19937 generator(20260104);
    logits = TestTensor<Exec, T>({s.rows, s.vocabulary}).random(generator, scale);
    dlogits = TestTensor<Exec, T>({s.rows, s.vocabulary});
    targets = TestTensor<Exec, std::int32_t>({s.rows});
    std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(s.vocabulary) - 1);
    targets.fill([&](std::size_t i) { return i % 4 == 3 ? ignored : any(generator); });
    auto per_row = [&] { return TestTensor<Exec, compute_t<T>>({s.rows}); };
    loss = per_row();
    lse = per_row();
    dloss = per_row().random(generator);
  }

  Impl::CrossEntropyForward forward_problem() const {
    return {logits.ref(), targets.ref(), loss.ref(), lse.ref(), options};
  }
  Impl::CrossEntropyBackward backward_problem() const {
    return {logits.ref(), targets.ref(), lse.ref(), dloss.ref(), dlogits.ref(), options};
  }

  template <class Real>
  auto forward() const {
    return ref::cross_entropy_forward<Real>(logits.template read<Real>(), targets.template read<Real>(),
                                            options);
  }
  template <class Real, class Store>
  auto backward() const {
    return ref::cross_entropy_backward<Real, Store>(logits.template read<Real>(), targets.template read<Real>(),
                                                    lse.template read<Real>(), dloss.template read<Real>(),
                                                    options);
  }
  /// lse as forward saves it.
  void save_lse() {
    const auto saved = forward<oracle_t<T>>();
    lse.fill([&](std::size_t i) { return static_cast<compute_t<T>>(saved.lse.values()[i]); });
  }
};

/// Whether `value` is `expected` but for a few roundings to S, that of lse among them: four ulps.
template <class S>
bool is_near(double value, double expected) {
  return std::abs(value - expected) <= 4 * ulp(dtype_of<S>, std::abs(expected));
}

/// Scores of a few units, of ±80 and of ±10000.
const std::vector<double> scales{2.0, 40.0, 5000.0};
/// Beyond a cap the gradient vanishes, and too few roundings are left to compare.
const std::vector<double> scales_below_the_cap{2.0, 15.0};

/// Holds every kernel of both directions against the oracle.
template <class T>
void check_against_the_oracle(Tensors<T>& t) {
  const auto expected = t.template forward<oracle_t<T>>();
  const auto naive = t.template forward<compute_t<T>>();
  test_every_kernel(t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
    check_close("loss", t.loss, expected.loss, naive.loss);
    check_close("lse", t.lse, expected.lse, naive.lse);
  });
  t.save_lse();
  const auto gradient = t.template backward<oracle_t<T>, oracle_t<T>>();
  const auto naive_gradient = t.template backward<compute_t<T>, T>();
  test_every_kernel(t.backward_problem(), {&t.dlogits},
                    [&](const std::string&) { check_close("dlogits", t.dlogits, gradient, naive_gradient); });
}

template <class T>
void check_shapes(const std::vector<Shape>& shapes, const CrossEntropyOptions& options) {
  const bool capped = options.softcap > 0;
  for (const double scale : capped ? scales_below_the_cap : scales)
    for (const Shape shape : shapes) {
      if (capped && shape.vocabulary == 1) continue;  // a gradient of 0, and what rounding the cap makes of it
      BOOST_TEST_CONTEXT(describe(options) << ", logits of about " << scale) {
        Tensors<T> t(shape, scale);
        t.options = options;
        check_against_the_oracle(t);
      }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(kernels_match_the_oracle, T, Scalars) {
  for (const CrossEntropyOptions& options : option_sets) check_shapes<T>(short_rows, options);
  for (const CrossEntropyOptions& options : {option_sets.front(), option_sets.back()})
    check_shapes<T>(long_rows, options);
}

// The largest logit is found late, and what was summed before is scaled again and again.
BOOST_AUTO_TEST_CASE_TEMPLATE(rising_logits_after_impossible_tokens_match_the_oracle, T, Scalars) {
  for (const double softcap : {0.0, 15.0}) {
    Tensors<T> t({20, 5003});
    t.options.softcap = softcap;
    const auto noise = t.logits.template read<double>().values();
    t.logits.fill([&](std::size_t i) {
      const std::size_t v = i % 5003;
      const double x =
          v < 2100 ? -std::numeric_limits<double>::infinity() : 0.01 * static_cast<double>(v) + noise[i];
      return T(static_cast<compute_t<T>>(x));
    });
    t.targets.fill([](std::size_t i) { return 2100 + 100 * i; });
    check_against_the_oracle(t);
  }
}

// Kernels may treat long stretches of a row by the size of their logits: here small, negative alone, large.
BOOST_AUTO_TEST_CASE_TEMPLATE(stretches_of_any_size_match_the_oracle, T, Scalars) {
  constexpr std::size_t columns = 9000, stretch = 4096;
  for (const double large : {40.0, 300.0, -300.0}) {
    Tensors<T> t({100, columns});
    const auto noise = t.logits.template read<double>().values();
    t.logits.fill([&](std::size_t i) {
      const double x[] = {noise[i], -20 - std::abs(noise[i]), large + noise[i]};
      return T(static_cast<compute_t<T>>(x[std::min<std::size_t>(i % columns / stretch, 2)]));
    });
    BOOST_TEST_CONTEXT("large logits of about " << large) { check_against_the_oracle(t); }
  }
}

// With lse = 0 the gradient is the exponential itself.
using HalfScalars = std::tuple<bf16, f16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(exponentials_of_16_bits_are_rounded_once, T, HalfScalars) {
  constexpr std::int64_t columns = 50003;
  Tensors<T> t({1, columns});
  t.logits.fill(
      [](std::size_t i) { return T(static_cast<compute_t<T>>(-86.0 * static_cast<double>(i) / columns)); });
  t.targets.fill([](std::size_t) { return 0; });
  t.lse.fill([](std::size_t) { return 0; });
  t.dloss.fill([](std::size_t) { return 1; });
  const auto logits = t.logits.template read<double>().values();
  test_every_kernel(t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto got = t.dlogits.template read<double>().values();
    double worst = 0;
    for (std::size_t i = 1; i < got.size(); ++i) {
      const double exact = std::exp(logits[i]);
      worst = std::max(worst, std::abs(got[i] - exact) / static_cast<double>(ulp(dtype_of<T>, exact)));
    }
    BOOST_TEST(worst <= 0.502);
    BOOST_TEST(worst > 0.4, "nothing was measured");
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ignored_rows_are_zero_whatever_they_hold, T, Scalars) {
  Tensors<T> t({4, 9});
  t.options.label_smoothing = 0.1;
  t.options.z_loss = 1e-3;
  const auto nan = std::numeric_limits<compute_t<T>>::quiet_NaN();
  const auto logits = t.logits.template read<compute_t<T>>().values();
  t.logits.fill([&](std::size_t i) { return T(i / 9 == 3 ? nan : logits[i]); });
  t.dloss.fill([&](std::size_t i) { return i == 3 ? nan : 1; });
  test_every_kernel(t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
    const auto loss = t.loss.template read<double>(), lse = t.lse.template read<double>();
    for (int row = 0; row < 3; ++row) BOOST_TEST(loss(row) > 0);
    BOOST_TEST(loss(3) == 0);
    BOOST_TEST(lse(3) == 0);
  });
  test_every_kernel(t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto dlogits = t.dlogits.template read<double>();
    for (int v = 0; v < 9; ++v) BOOST_TEST(dlogits(3, v) == 0);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_invalid_target_gives_nan_in_its_row_only, T, Scalars) {
  Tensors<T> t({4, 9});
  const std::int32_t targets[] = {0, 9, -1, 8};
  t.targets.fill([&](std::size_t i) { return targets[i]; });
  t.save_lse();
  const auto is_nan_where_expected = [](double value, int row) {
    return std::isnan(value) == (row == 1 || row == 2);
  };
  test_every_kernel(t.forward_problem(), {&t.loss}, [&](const std::string&) {
    const auto loss = t.loss.template read<double>();
    for (int row = 0; row < 4; ++row) BOOST_TEST(is_nan_where_expected(loss(row), row));
  });
  test_every_kernel(t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto dlogits = t.dlogits.template read<double>();
    for (int row = 0; row < 4; ++row)
      for (int v = 0; v < 9; ++v) BOOST_TEST(is_nan_where_expected(dlogits(row, v), row));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(minus_infinity_is_an_impossible_token, T, Scalars) {
  const double infinity = std::numeric_limits<double>::infinity();
  // A row with one possible token that is the target, one where the target is impossible, one without a
  // possible token.
  const std::vector<double> rows{1, -infinity, 1, -infinity, -infinity, -infinity};
  Tensors<T> t({3, 2});
  t.logits.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(rows[i])); });
  t.targets.fill([](std::size_t i) { return i == 1 ? 1 : 0; });
  test_every_kernel(t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
    const auto loss = t.loss.template read<double>(), lse = t.lse.template read<double>();
    BOOST_TEST(loss(0) == 0);
    BOOST_TEST(loss(1) == infinity);
    BOOST_TEST(std::isnan(loss(2)));
    BOOST_TEST(lse(1) == 1);
    BOOST_TEST(lse(2) == -infinity);
  });
  t.save_lse();
  t.dloss.fill([](std::size_t) { return 1; });
  test_every_kernel(t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto dlogits = t.dlogits.template read<double>().values();
    BOOST_TEST(
        (std::vector<double>(dlogits.begin(), dlogits.begin() + 4)) == (std::vector<double>{0, 0, 1, -1}),
        boost::test_tools::per_element());
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(smoothing_makes_a_row_with_an_impossible_token_infinite, T, Scalars) {
  const double infinity = std::numeric_limits<double>::infinity();
  Tensors<T> t({1, 3});
  t.options.label_smoothing = 0.3;
  t.logits.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(i == 1 ? -infinity : 0)); });
  t.targets.fill([](std::size_t) { return 0; });
  t.dloss.fill([](std::size_t) { return 1; });
  test_every_kernel(t.forward_problem(), {&t.loss, &t.lse},
                    [&](const std::string&) { BOOST_TEST(t.loss.template read<double>()(0) == infinity); });
  t.save_lse();
  const auto expected = t.template backward<oracle_t<T>, oracle_t<T>>();
  const auto naive = t.template backward<compute_t<T>, T>();
  test_every_kernel(t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    check_close("dlogits", t.dlogits, expected, naive);
    BOOST_TEST(is_near<T>(t.dlogits.template read<double>()(0, 1), -0.1));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_soft_cap_bounds_any_logit, T, Scalars) {
  const double infinity = std::numeric_limits<double>::infinity();
  Tensors<T> t({1, 3});
  t.options.softcap = 2;
  const double logits[] = {infinity, -infinity, 0};
  t.logits.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(logits[i])); });
  t.targets.fill([](std::size_t) { return 1; });
  t.dloss.fill([](std::size_t) { return 1; });
  const double lse = std::log(std::exp(2.0) + std::exp(-2.0) + 1);
  test_every_kernel(t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
    BOOST_TEST(is_near<compute_t<T>>(t.lse.template read<double>()(0), lse));
    BOOST_TEST(is_near<compute_t<T>>(t.loss.template read<double>()(0), lse + 2));
  });
  t.save_lse();
  test_every_kernel(t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto dlogits = t.dlogits.template read<double>();
    BOOST_TEST(dlogits(0, 0) == 0);
    BOOST_TEST(dlogits(0, 1) == 0);
    BOOST_TEST(is_near<T>(dlogits(0, 2), std::exp(-lse)));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_nan_among_the_logits_gives_a_nan_loss, T, Scalars) {
  Tensors<T> t({2, 9});
  const auto logits = t.logits.template read<compute_t<T>>().values();
  t.logits.fill(
      [&](std::size_t i) { return T(i == 4 ? std::numeric_limits<compute_t<T>>::quiet_NaN() : logits[i]); });
  test_every_kernel(t.forward_problem(), {&t.loss}, [&](const std::string&) {
    const auto loss = t.loss.template read<double>();
    BOOST_TEST(std::isnan(loss(0)));
    BOOST_TEST(std::isfinite(loss(1)));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dlogits_may_be_logits, T, Scalars) {
  Tensors<T> apart({5, 33}), t({5, 33});
  const auto& options = option_sets.back();
  auto run = [&](const Tensors<T>& x, const TestTensor<Exec, T>& dlogits) {
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
  Tensors<double> t({2, 3});
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
    Tensors<double> t({5, 7});
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
  Tensors<float> t({3, 5});
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
  Tensors<bf16> t({3, 5});
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
  check_error<DimensionMismatch>([&] { cross_entropy_forward(Exec(), logits, per_row, per_row, per_row); },
                                 "kformer::cross_entropy_forward: targets is stored as f32, expected i32: "
                                 "logits[3,5] targets[3] loss[3] lse[3]");
  check_error<DimensionMismatch>(
      [&] { cross_entropy_backward(Exec(), logits, targets, rows16.view<1>(), per_row, logits); },
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
