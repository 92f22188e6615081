// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kformer/ops/cross_entropy.hpp"
#include "support/every_kernel.hpp"
#include "support/references.hpp"

/// \file
/// Problems of cross entropy for tests, and what kernels have to make of them.

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

/// The kernels that are held to it.
struct CrossEntropyKernels {
  KernelList<Impl::CrossEntropyForward, Exec> forward;
  KernelList<Impl::CrossEntropyBackward, Exec> backward;
};

struct CrossEntropyShape {
  std::int64_t rows, vocabulary;
};

inline constexpr std::int32_t ignored = -100;

/// Each option alone, and all of them.
inline const std::vector<CrossEntropyOptions> option_sets{
    {},
    {.label_smoothing = 0.1},
    {.z_loss = 1e-4},
    {.softcap = 30},
    {.label_smoothing = 0.25, .z_loss = 1e-2, .softcap = 30}};

inline std::string describe(const CrossEntropyOptions& options) {
  return "label smoothing " + std::to_string(options.label_smoothing) + ", z-loss " +
         std::to_string(options.z_loss) + ", soft cap " + std::to_string(options.softcap);
}

template <class T>
struct CrossEntropyTensors {
  TestTensor<Exec, T> logits, dlogits;
  TestTensor<Exec, std::int32_t> targets;
  TestTensor<Exec, compute_t<T>> loss, lse, dloss;
  CrossEntropyOptions options{.ignore_index = ignored};

  explicit CrossEntropyTensors(CrossEntropyShape s, double scale = 2.0, unsigned seed = 20260104) {
    std::mt19937 generator(seed);
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

/// Whether `value` is `expected` except for a few roundings to S, including that of lse: four ulps.
template <class S>
bool is_near(double value, double expected) {
  return std::abs(value - expected) <= 4 * ulp(dtype_of<S>, std::abs(expected));
}

/// Scores of a few units, of ±80 and of ±10000.
inline const std::vector<double> scales{2.0, 40.0, 5000.0};
/// Beyond a cap the gradient vanishes, and too few roundings are left to compare.
inline const std::vector<double> scales_below_the_cap{2.0, 15.0};

/// Holds every kernel of both directions against the oracle.
template <class T>
void check_against_the_oracle(CrossEntropyTensors<T>& t, const CrossEntropyKernels& all) {
  const auto naive = t.template forward<naive_t<T>>();
  test_kernels(all.forward, t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
    check_close("loss", t.loss, naive.loss);
    check_close("lse", t.lse, naive.lse);
  });
  t.save_lse();
  const auto gradient = t.template backward<naive_t<T>, T>();
  test_kernels(all.backward, t.backward_problem(), {&t.dlogits},
               [&](const std::string&) { check_close("dlogits", t.dlogits, gradient); });
}

template <class T>
void check_shapes(const std::vector<CrossEntropyShape>& shapes, const CrossEntropyOptions& options,
                  const CrossEntropyKernels& all) {
  const bool capped = options.softcap > 0;
  for (const double scale : capped ? scales_below_the_cap : scales)
    for (const CrossEntropyShape shape : shapes) {
      if (capped && shape.vocabulary == 1) continue;  // a gradient of 0, and what rounding the cap makes of it
      BOOST_TEST_CONTEXT(describe(options) << ", logits of about " << scale) {
        CrossEntropyTensors<T> t(shape, scale);
        t.options = options;
        check_against_the_oracle(t, all);
      }
    }
}

/// The largest logit is found late, and what was summed before is scaled again and again.
template <class T>
void check_rising_logits_after_impossible_tokens_match_the_oracle(const CrossEntropyKernels& all) {
  for (const double softcap : {0.0, 15.0}) {
    CrossEntropyTensors<T> t({20, 5003});
    t.options.softcap = softcap;
    const auto noise = t.logits.template read<double>().values();
    t.logits.fill([&](std::size_t i) {
      const std::size_t v = i % 5003;
      const double x =
          v < 2100 ? -std::numeric_limits<double>::infinity() : 0.01 * static_cast<double>(v) + noise[i];
      return T(static_cast<compute_t<T>>(x));
    });
    t.targets.fill([](std::size_t i) { return 2100 + 100 * i; });
    check_against_the_oracle(t, all);
  }
}

/// With lse = 0 the gradient is the exponential itself.
template <class T>
void check_exponentials_of_16_bits_are_rounded_once(const CrossEntropyKernels& all) {
  constexpr std::int64_t columns = 50003;
  CrossEntropyTensors<T> t({1, columns});
  t.logits.fill(
      [](std::size_t i) { return T(static_cast<compute_t<T>>(-86.0 * static_cast<double>(i) / columns)); });
  t.targets.fill([](std::size_t) { return 0; });
  t.lse.fill([](std::size_t) { return 0; });
  t.dloss.fill([](std::size_t) { return 1; });
  const auto logits = t.logits.template read<double>().values();
  test_kernels(all.backward, t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto got = t.dlogits.template read<double>().values();
    double worst = 0;
    for (std::size_t i = 1; i < got.size(); ++i) {
      const double exact = std::exp(logits[i]);
      worst = std::max(worst, static_cast<double>(difference(got[i], exact) / ulp(dtype_of<T>, exact)));
    }
    BOOST_TEST(worst <= 0.502);
    BOOST_TEST(worst > 0.4, "nothing was measured");
  });
}

template <class T>
void check_ignored_rows_are_zero_whatever_they_hold(const CrossEntropyKernels& all) {
  CrossEntropyTensors<T> t({4, 9});
  t.options.label_smoothing = 0.1;
  t.options.z_loss = 1e-3;
  const auto nan = std::numeric_limits<compute_t<T>>::quiet_NaN();
  const auto logits = t.logits.template read<compute_t<T>>().values();
  t.logits.fill([&](std::size_t i) { return T(i / 9 == 3 ? nan : logits[i]); });
  t.dloss.fill([&](std::size_t i) { return i == 3 ? nan : 1; });
  test_kernels(all.forward, t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
    const auto loss = t.loss.template read<double>(), lse = t.lse.template read<double>();
    for (int row = 0; row < 3; ++row) BOOST_TEST(loss(row) > 0);
    BOOST_TEST(loss(3) == 0);
    BOOST_TEST(lse(3) == 0);
  });
  test_kernels(all.backward, t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto dlogits = t.dlogits.template read<double>();
    for (int v = 0; v < 9; ++v) BOOST_TEST(dlogits(3, v) == 0);
  });
}

template <class T>
void check_an_invalid_target_gives_nan_in_its_row_only(const CrossEntropyKernels& all) {
  CrossEntropyTensors<T> t({4, 9});
  const std::int32_t targets[] = {0, 9, -1, 8};
  t.targets.fill([&](std::size_t i) { return targets[i]; });
  t.save_lse();
  const auto is_nan_where_expected = [](double value, int row) {
    return std::isnan(value) == (row == 1 || row == 2);
  };
  test_kernels(all.forward, t.forward_problem(), {&t.loss}, [&](const std::string&) {
    const auto loss = t.loss.template read<double>();
    for (int row = 0; row < 4; ++row) BOOST_TEST(is_nan_where_expected(loss(row), row));
  });
  test_kernels(all.backward, t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto dlogits = t.dlogits.template read<double>();
    for (int row = 0; row < 4; ++row)
      for (int v = 0; v < 9; ++v) BOOST_TEST(is_nan_where_expected(dlogits(row, v), row));
  });
}

template <class T>
void check_minus_infinity_is_an_impossible_token(const CrossEntropyKernels& all) {
  const double infinity = std::numeric_limits<double>::infinity();
  // A row with one possible token that is the target, one where the target is impossible, one without a
  // possible token.
  const std::vector<double> rows{1, -infinity, 1, -infinity, -infinity, -infinity};
  CrossEntropyTensors<T> t({3, 2});
  t.logits.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(rows[i])); });
  t.targets.fill([](std::size_t i) { return i == 1 ? 1 : 0; });
  test_kernels(all.forward, t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
    const auto loss = t.loss.template read<double>(), lse = t.lse.template read<double>();
    BOOST_TEST(loss(0) == 0);
    BOOST_TEST(loss(1) == infinity);
    BOOST_TEST(std::isnan(loss(2)));
    BOOST_TEST(lse(1) == 1);
    BOOST_TEST(lse(2) == -infinity);
  });
  t.save_lse();
  t.dloss.fill([](std::size_t) { return 1; });
  test_kernels(all.backward, t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto dlogits = t.dlogits.template read<double>().values();
    BOOST_TEST(
        (std::vector<double>(dlogits.begin(), dlogits.begin() + 4)) == (std::vector<double>{0, 0, 1, -1}),
        boost::test_tools::per_element());
  });
}

template <class T>
void check_smoothing_makes_a_row_with_an_impossible_token_infinite(const CrossEntropyKernels& all) {
  const double infinity = std::numeric_limits<double>::infinity();
  CrossEntropyTensors<T> t({1, 3});
  t.options.label_smoothing = 0.3;
  t.logits.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(i == 1 ? -infinity : 0)); });
  t.targets.fill([](std::size_t) { return 0; });
  t.dloss.fill([](std::size_t) { return 1; });
  test_kernels(all.forward, t.forward_problem(), {&t.loss, &t.lse},
               [&](const std::string&) { BOOST_TEST(t.loss.template read<double>()(0) == infinity); });
  t.save_lse();
  const auto naive = t.template backward<naive_t<T>, T>();
  test_kernels(all.backward, t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    check_close("dlogits", t.dlogits, naive);
    BOOST_TEST(is_near<T>(t.dlogits.template read<double>()(0, 1), -0.1));
  });
}

template <class T>
void check_a_soft_cap_bounds_any_logit(const CrossEntropyKernels& all) {
  const double infinity = std::numeric_limits<double>::infinity();
  CrossEntropyTensors<T> t({1, 3});
  t.options.softcap = 2;
  const double logits[] = {infinity, -infinity, 0};
  t.logits.fill([&](std::size_t i) { return T(static_cast<compute_t<T>>(logits[i])); });
  t.targets.fill([](std::size_t) { return 1; });
  t.dloss.fill([](std::size_t) { return 1; });
  const double lse = std::log(std::exp(2.0) + std::exp(-2.0) + 1);
  test_kernels(all.forward, t.forward_problem(), {&t.loss, &t.lse}, [&](const std::string&) {
    BOOST_TEST(is_near<compute_t<T>>(t.lse.template read<double>()(0), lse));
    BOOST_TEST(is_near<compute_t<T>>(t.loss.template read<double>()(0), lse + 2));
  });
  t.save_lse();
  test_kernels(all.backward, t.backward_problem(), {&t.dlogits}, [&](const std::string&) {
    const auto dlogits = t.dlogits.template read<double>();
    BOOST_TEST(dlogits(0, 0) == 0);
    BOOST_TEST(dlogits(0, 1) == 0);
    BOOST_TEST(is_near<T>(dlogits(0, 2), std::exp(-lse)));
  });
}

template <class T>
void check_a_nan_among_the_logits_gives_a_nan_loss(const CrossEntropyKernels& all) {
  CrossEntropyTensors<T> t({2, 9});
  const auto logits = t.logits.template read<compute_t<T>>().values();
  t.logits.fill(
      [&](std::size_t i) { return T(i == 4 ? std::numeric_limits<compute_t<T>>::quiet_NaN() : logits[i]); });
  test_kernels(all.forward, t.forward_problem(), {&t.loss}, [&](const std::string&) {
    const auto loss = t.loss.template read<double>();
    BOOST_TEST(std::isnan(loss(0)));
    BOOST_TEST(std::isfinite(loss(1)));
  });
}

}  // namespace kformer::Testing
