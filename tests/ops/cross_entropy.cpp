// SPDX-License-Identifier: MIT
#include "kformer/ops/cross_entropy.hpp"

#include <numeric>

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
const std::vector<Shape> shapes{{1, 1}, {3, 5}, {75, 113}, {2, 1025}, {1, 32003}, {0, 8}};
constexpr std::int32_t ignored = -100;

template <class T>
struct Tensors {
  TestTensor<Exec, T> logits, dlogits;
  TestTensor<Exec, std::int32_t> targets;
  TestTensor<Exec, compute_t<T>> loss, lse, dloss;

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
    return {logits.ref(), targets.ref(), loss.ref(), lse.ref(), {}};
  }
  Impl::CrossEntropyBackward backward_problem() const {
    return {logits.ref(), targets.ref(), lse.ref(), dloss.ref(), dlogits.ref(), {}};
  }

  template <class Real>
  auto forward() const {
    return ref::cross_entropy_forward<Real>(logits.template read<Real>(), targets.template read<Real>(),
                                            ignored);
  }
  template <class Real, class Store>
  auto backward() const {
    return ref::cross_entropy_backward<Real, Store>(logits.template read<Real>(), targets.template read<Real>(),
                                                    lse.template read<Real>(), dloss.template read<Real>(),
                                                    ignored);
  }
  /// lse as forward saves it.
  void save_lse() {
    const auto saved = forward<oracle_t<T>>();
    lse.fill([&](std::size_t i) { return static_cast<compute_t<T>>(saved.lse.values()[i]); });
  }
};

/// Scores of a few units, of ±80 and of ±10000.
const std::vector<double> scales{2.0, 40.0, 5000.0};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const double scale : scales)
    for (const Shape shape : shapes) {
      Tensors<T> t(shape, scale);
      const auto expected = t.template forward<oracle_t<T>>();
      const auto naive = t.template forward<compute_t<T>>();
      test_every_kernel(t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
        check_close("loss", t.loss, expected.loss, naive.loss);
        check_close("lse", t.lse, expected.lse, naive.lse);
      });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const double scale : scales)
    for (const Shape shape : shapes) {
      Tensors<T> t(shape, scale);
      t.save_lse();
      const auto expected = t.template backward<oracle_t<T>, oracle_t<T>>();
      const auto naive = t.template backward<compute_t<T>, T>();
      test_every_kernel(t.backward_problem(), {&t.dlogits},
                        [&](const std::string&) { check_close("dlogits", t.dlogits, expected, naive); });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ignored_rows_are_zero_whatever_they_hold, T, Scalars) {
  Tensors<T> t({4, 9});
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
  auto run = [](const Tensors<T>& x, const TestTensor<Exec, T>& dlogits) {
    const auto logits = x.logits.template view<2>();
    const auto targets = x.targets.template view<1>();
    const auto lse = x.lse.template view<1>();
    cross_entropy_forward(Exec(), logits, targets, x.loss.template view<1>(), lse);
    cross_entropy_backward(Exec(), logits, targets, lse, x.dloss.template view<1>(),
                           dlogits.template view<2>());
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
  const auto r = ref::cross_entropy_forward<double>(logits, targets, ignored);
  const auto close = boost::test_tools::tolerance(1e-15);
  BOOST_TEST(r.lse(0) == std::log(4.0), close);
  BOOST_TEST(r.loss(0) == std::log(4.0 / 3), boost::test_tools::tolerance(1e-14));
  BOOST_TEST(r.loss(1) == 0);
  const auto d = ref::cross_entropy_backward<double, double>(logits, targets, r.lse, dloss, ignored);
  BOOST_TEST(d(0, 0) == -2, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(d(0, 1) == 2, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(d(1, 0) == 0);
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  Tensors<double> t({5, 7});
  std::mt19937 generator(7);
  const auto direction = TestTensor<Exec, double>({5, 7}).random(generator).read<double>().values();
  const auto logits = t.logits.read<double>().values(), dloss = t.dloss.read<double>().values();
  auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  auto loss = [&](double h) {
    t.logits.fill([&](std::size_t i) { return logits[i] + h * direction[i]; });
    cross_entropy_forward(Exec(), t.logits.view<2>(), t.targets.view<1>(), t.loss.view<1>(), t.lse.view<1>());
    Exec().fence("kformer::Testing::cross_entropy");
    return dot(t.loss.read<double>().values(), dloss);
  };
  loss(0);
  cross_entropy_backward(Exec(), t.logits.view<2>(), t.targets.view<1>(), t.lse.view<1>(), t.dloss.view<1>(),
                         t.dlogits.view<2>());
  Exec().fence("kformer::Testing::cross_entropy");
  check_gradient("logits", loss, dot(t.dlogits.read<double>().values(), direction));
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
