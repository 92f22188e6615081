// SPDX-License-Identifier: MIT
#include "kformer/train/loss_scaling.hpp"

#include <cmath>

#include "kformer/ops/adamw.hpp"
#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/linear.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(loss_scaling)

BOOST_AUTO_TEST_CASE(the_scale_grows_after_good_steps_and_backs_off_after_a_bad_one) {
  DynamicLossScale scale({.initial = 16, .growth_interval = 3, .least = 4, .greatest = 64});
  BOOST_TEST(scale.scale() == 16);
  const struct {
    bool finite;
    double after;
    std::int64_t good_steps;
  } steps[] = {{true, 16, 1},  {true, 16, 2},  {true, 32, 0}, {true, 32, 1}, {false, 16, 0},
               {true, 16, 1},  {true, 16, 2},  {true, 32, 0}, {true, 32, 1}, {true, 32, 2},
               {true, 64, 0},  {true, 64, 1},  {true, 64, 2}, {true, 64, 0},  // the greatest
               {false, 32, 0}, {false, 16, 0}, {false, 8, 0}, {false, 4, 0}, {false, 4, 0}};
  for (const auto& step : steps) {
    BOOST_TEST(scale.update(step.finite) == step.finite);
    BOOST_TEST(scale.scale() == step.after);
    BOOST_TEST(scale.good_steps() == step.good_steps);
  }
}

BOOST_AUTO_TEST_CASE(other_factors) {
  DynamicLossScale scale(
      {.initial = 10, .growth_factor = 3, .backoff_factor = 0.25, .growth_interval = 1, .least = 1});
  scale.update(true);
  BOOST_TEST(scale.scale() == 30);
  scale.update(false);
  BOOST_TEST(scale.scale() == 7.5);
}

BOOST_AUTO_TEST_CASE(a_static_scale_never_changes_but_bad_steps_do_not_count) {
  DynamicLossScale scale({.initial = 1024, .growth_interval = 0});
  BOOST_TEST(scale.update(true));
  BOOST_TEST(!scale.update(false));
  BOOST_TEST(scale.scale() == 1024);
}

BOOST_AUTO_TEST_CASE(a_restored_scale_goes_on_as_the_one_that_was_saved) {
  const LossScaling options{.initial = 16, .growth_interval = 3};
  DynamicLossScale first(options), second(options);
  for (const bool finite : {true, true, true, false, true, true}) first.update(finite);
  second.restore(first.scale(), first.good_steps());
  for (const bool finite : {true, true, false, true}) {
    first.update(finite);
    second.update(finite);
    BOOST_TEST(first.scale() == second.scale());
    BOOST_TEST(first.good_steps() == second.good_steps());
  }
}

BOOST_AUTO_TEST_CASE(errors_say_what_was_expected) {
  const auto check = [](const LossScaling& options, const std::string& text) {
    check_error<NotSupported>([&] { DynamicLossScale{options}; }, "kformer::DynamicLossScale: " + text);
  };
  check(
      {.initial = 0.5},
      "expected 0 < least <= initial <= greatest, all finite, got least 1, initial 0.5, greatest 1.67772e+07");
  check({.least = 0},
        "expected 0 < least <= initial <= greatest, all finite, got least 0, initial 65536, greatest "
        "1.67772e+07");
  check({.growth_factor = 0.5}, "growth_factor must be at least 1, got 0.5");
  check({.backoff_factor = 1}, "backoff_factor must lie between 0 and 1, got 1");
  check({.growth_interval = -1}, "growth_interval must not be negative, got -1; 0 keeps the scale fixed");
  DynamicLossScale scale({.initial = 16, .least = 4, .greatest = 64});
  check_error<NotSupported>([&] { scale.restore(128, 0); },
                            "kformer::DynamicLossScale: a scale of 128 cannot be restored: it must lie between "
                            "least 4 and greatest 64");
  check_error<NotSupported>([&] { scale.restore(16, -1); },
                            "kformer::DynamicLossScale: good_steps must not be negative, got -1");
}

/// An output layer in storage T: logits = x·Wᵀ, cross entropy, and the gradient of W. The loss is divided by
/// the tokens of a large batch, of which these rows are a part.
template <class T>
struct OutputLayer {
  static constexpr std::int64_t rows = 8, hidden = 16, words = 64;
  static constexpr double batch_tokens = 1 << 22;

  TestTensor<Exec, T> x{{rows, hidden}, Rows::packed}, weight{{words, hidden}, Rows::packed},
      logits{{rows, words}, Rows::packed}, dlogits{{rows, words}, Rows::packed};
  TestTensor<Exec, float> master{{words, hidden}, Rows::packed}, dweight{{words, hidden}, Rows::packed},
      m{{words, hidden}, Rows::packed}, v{{words, hidden}, Rows::packed}, loss{{rows}}, lse{{rows}},
      dloss{{rows}}, norm{{1}};
  TestTensor<Exec, std::int32_t> targets{{rows}};

  OutputLayer() {
    std::mt19937 generator(20260109);
    std::normal_distribution<float> normal;
    // Values of f16 in either storage, so that both layers are given the same.
    const auto value = [&](std::size_t) { return T(float(f16(normal(generator)))); };
    x.fill(value);
    weight.fill([&](std::size_t) { return T(float(f16(0.1f * normal(generator)))); });
    const auto initial = weight.template read<double>().values();
    master.fill([&](std::size_t i) { return float(initial[i]); });
    for (auto* zero : {&m, &v}) zero->fill([](std::size_t) { return 0.0f; });
    targets.fill([&](std::size_t) { return static_cast<std::int32_t>(generator() % words); });
  }

  double forward() {
    linear_forward(Exec(), x.template view<2>(), weight.template view<2>(), logits.template view<2>());
    cross_entropy_forward(Exec(), logits.template view<2>(), targets.template view<1>(),
                          loss.template view<1>(), lse.template view<1>());
    Exec().fence("kformer::Testing::loss_scaling");
    double sum = 0;
    const auto losses = loss.template read<double>();
    for (const double l : losses.values()) sum += l;
    return sum / rows;
  }

  /// dweight of the loss times `scale`.
  void backward(double scale) {
    dloss.fill([&](std::size_t) { return float(scale / batch_tokens); });
    dweight.fill([](std::size_t) { return 0.0f; });
    cross_entropy_backward(Exec(), logits.template view<2>(), targets.template view<1>(),
                           lse.template view<1>(), dloss.template view<1>(), dlogits.template view<2>());
    linear_backward_weight(Exec(), x.template view<2>(), dlogits.template view<2>(),
                           dweight.template view<2>());
    Exec().fence("kformer::Testing::loss_scaling");
  }
};

BOOST_AUTO_TEST_CASE(a_gradient_that_underflows_in_f16_is_recovered) {
  OutputLayer<f16> layer;
  OutputLayer<float> exact;
  layer.forward();
  exact.forward();
  // Both differentiate the same logits: the test compares the backward pass.
  const auto logits = layer.logits.read<float>().values();
  exact.logits.fill([&](std::size_t i) { return logits[i]; });
  const auto lse = layer.lse.read<float>().values();
  exact.lse.fill([&](std::size_t i) { return lse[i]; });
  exact.backward(1);
  const auto expected = exact.dweight.read<double>().values(), dlogits = exact.dlogits.read<double>().values();
  const auto x = exact.x.read<double>().values();

  layer.backward(1);
  std::size_t lost = 0, nonzero = 0;
  const auto unscaled = layer.dweight.read<double>().values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    nonzero += expected[i] != 0;
    lost += expected[i] != 0 && unscaled[i] == 0;
  }
  // Only words that are a target have gradients large enough for f16.
  BOOST_TEST(nonzero == expected.size());
  BOOST_TEST(lost >= (OutputLayer<f16>::words - OutputLayer<f16>::rows) * OutputLayer<f16>::hidden);

  const double scale = DynamicLossScale({.initial = 1 << 24, .greatest = 1 << 24}).scale();
  layer.backward(scale);
  const auto scaled = layer.dweight.read<double>().values();
  constexpr auto rows = OutputLayer<f16>::rows, hidden = OutputLayer<f16>::hidden,
                 words = OutputLayer<f16>::words;
  for (std::int64_t word = 0; word < words; ++word)
    for (std::int64_t h = 0; h < hidden; ++h) {
      // Each dlogits is rounded to 11 bits, once; sums are float in both.
      double addends = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        addends += std::abs(dlogits[r * words + word] * x[r * hidden + h]);
      const auto i = static_cast<std::size_t>(word * hidden + h);
      BOOST_TEST(std::abs(scaled[i] / scale - expected[i]) <= addends * (0x1p-11 + (rows + 4) * 0x1p-23),
                 "at " << word << ", " << h << ": " << scaled[i] / scale << ", expected " << expected[i]);
    }
}

BOOST_AUTO_TEST_CASE(training_in_f16_overflows_backs_off_and_goes_on) {
  OutputLayer<f16> layer;
  const double first_loss = layer.forward();
  // The target's dlogits is about scale / batch_tokens, at first 2^18: f16 ends at 65504.
  DynamicLossScale scale({.initial = 0x1p40, .growth_interval = 10, .greatest = 0x1p40});
  const AdamWParameter parameter{
      layer.weight.ref(), layer.dweight.ref(), layer.master.ref(), layer.m.ref(), layer.v.ref(), {}, {}, 0};
  const std::span parameters(&parameter, 1);
  const Kokkos::View<std::byte*, Exec::memory_space> workspace(
      "kformer::Testing::workspace", gradient_norm_workspace_bytes(Exec(), parameters));
  std::int64_t counted = 0, skipped = 0, skipped_later = 0;
  for (int i = 0; i < 60; ++i) {
    layer.forward();
    layer.backward(scale.scale());
    const auto before = layer.master.bits();
    gradient_norm(Exec(), parameters, layer.norm.view<1>(), workspace);
    kformer::adamw(Exec(), parameters, layer.norm.view<1>(),
                   {.learning_rate = 0.02,
                    .eps = 1e-15,
                    .step = counted + 1,
                    .gradient_scale = 1 / scale.scale(),
                    .max_norm = 1});
    Exec().fence("kformer::Testing::loss_scaling");
    const bool finite = std::isfinite(layer.norm.read<double>()(0));
    BOOST_TEST((layer.master.bits() == before) == !finite);
    if (scale.update(finite)) {
      ++counted;
    } else {
      ++skipped;
      skipped_later += counted > 0;
    }
  }
  BOOST_TEST(skipped >= 3);
  BOOST_TEST(skipped_later >= 1);  // it grew again until it was too much
  BOOST_TEST(counted >= 40);
  BOOST_TEST(layer.forward() < 0.1 * first_loss);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
