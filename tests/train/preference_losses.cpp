// SPDX-License-Identifier: MIT
#include "kformer/train/preference_loss.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
const auto close = boost::test_tools::tolerance(1e-14);

/// Log-ratios 0.5 and −1.5 over 2 and 4 tokens: h = 2, and 0.25 + 0.375 = 0.625 per token.
constexpr PreferencePair pair{.chosen = {-3, -3.5, 2}, .rejected = {-9, -7.5, 4}};

PreferenceTerm term_of(const PreferencePair& of, const PreferenceOptions& options) {
  return preference_loss({&of, 1}, options).pairs.at(0);
}

/// A pair whose rewards differ by `margin`, with β = 1.
PreferenceTerm term_at(double margin, PreferenceKind kind, double smoothing = 0) {
  return term_of({.chosen = {margin - 7, -7, 1}, .rejected = {-5, -5, 1}},
                 {.kind = kind, .beta = 1, .label_smoothing = smoothing});
}

auto refused(const PreferenceOptions& options) {
  return [=] { preference_loss({&pair, 1}, options); };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(preference_losses)

BOOST_AUTO_TEST_CASE(sigmoid_by_hand) {
  // βh = log 3 has σ = 3/4.
  const double beta = std::log(3.0) / 2;
  const PreferenceTerm term = term_of(pair, {.beta = beta});
  BOOST_TEST(term.loss == std::log(4.0 / 3), close);
  BOOST_TEST(term.dchosen == -beta / 4, close);
  BOOST_TEST(term.drejected == beta / 4, close);
  BOOST_TEST(term.chosen_reward == beta / 2, close);
  BOOST_TEST(term.rejected_reward == -1.5 * beta, close);
  BOOST_TEST(term.margin() == 2 * beta, close);
}

BOOST_AUTO_TEST_CASE(label_smoothing_by_hand) {
  const double beta = std::log(3.0) / 2;
  const PreferenceTerm term = term_of(pair, {.beta = beta, .label_smoothing = 0.2});
  BOOST_TEST(term.loss == 0.8 * std::log(4.0 / 3) + 0.2 * std::log(4.0), close);
  BOOST_TEST(term.dchosen == beta * (0.2 * 0.75 - 0.8 * 0.25), close);
  BOOST_TEST(term.drejected == -term.dchosen);
}

BOOST_AUTO_TEST_CASE(ipo_by_hand) {
  const PreferenceTerm term = term_of(pair, {.kind = PreferenceKind::ipo, .beta = 0.25});
  BOOST_TEST(term.loss == 1.375 * 1.375);
  BOOST_TEST(term.dchosen == -1.375);
  BOOST_TEST(term.drejected == 0.6875);
  BOOST_TEST(term.chosen_reward == 0.125);
}

BOOST_AUTO_TEST_CASE(hinge_by_hand) {
  const PreferenceTerm term = term_of(pair, {.kind = PreferenceKind::hinge, .beta = 0.25});
  BOOST_TEST(term.loss == 0.5);
  BOOST_TEST(term.dchosen == -0.25);
  BOOST_TEST(term.drejected == 0.25);
  for (const double margin : {1.0, 1.5}) {  // at the kink and behind it
    const PreferenceTerm far = term_at(margin, PreferenceKind::hinge);
    BOOST_TEST(far.loss == 0);
    BOOST_TEST(far.dchosen == 0);
    BOOST_TEST(far.drejected == 0);
  }
}

BOOST_AUTO_TEST_CASE(an_unchanged_policy_has_no_rewards) {
  for (const PreferenceKind kind : {PreferenceKind::sigmoid, PreferenceKind::ipo, PreferenceKind::hinge}) {
    const PreferencePair same{.chosen = {-3.3, -3.3, 7}, .rejected = {-0.1, -0.1, 2}};
    const auto result = preference_loss({&same, 1}, {.kind = kind, .beta = 0.5});
    BOOST_TEST(result.chosen_reward == 0);
    BOOST_TEST(result.rejected_reward == 0);
    BOOST_TEST(result.accuracy == 0);  // no reward is the higher one
    BOOST_TEST(result.pairs[0].dchosen < 0);
    BOOST_TEST(result.loss == (kind == PreferenceKind::sigmoid ? std::numbers::ln2 : 1.0), close);
  }
}

BOOST_AUTO_TEST_CASE(derivatives_are_those_of_the_loss) {
  const double step = 1e-6;
  for (const PreferenceKind kind : {PreferenceKind::sigmoid, PreferenceKind::ipo, PreferenceKind::hinge})
    for (const double smoothing : {0.0, 0.3}) {
      if (smoothing > 0 && kind != PreferenceKind::sigmoid) continue;
      const PreferenceOptions options{.kind = kind, .beta = 0.3, .label_smoothing = smoothing};
      const auto loss_at = [&](double chosen, double rejected) {
        PreferencePair moved = pair;
        moved.chosen.policy += chosen;
        moved.rejected.policy += rejected;
        return term_of(moved, options).loss;
      };
      const PreferenceTerm term = term_of(pair, options);
      const auto near = boost::test_tools::tolerance(1e-8);
      BOOST_TEST(term.dchosen == (loss_at(step, 0) - loss_at(-step, 0)) / (2 * step), near);
      BOOST_TEST(term.drejected == (loss_at(0, step) - loss_at(0, -step)) / (2 * step), near);
    }
}

BOOST_AUTO_TEST_CASE(large_ratios_do_not_overflow) {
  const PreferenceTerm right = term_at(1000, PreferenceKind::sigmoid),
                       wrong = term_at(-1000, PreferenceKind::sigmoid);
  BOOST_TEST(right.loss == 0);
  BOOST_TEST(right.dchosen == 0);
  BOOST_TEST(wrong.loss == 1000);
  BOOST_TEST(wrong.dchosen == -1);
  BOOST_TEST(term_at(1000, PreferenceKind::sigmoid, 0.1).loss == 100, close);
  BOOST_TEST(term_at(1000, PreferenceKind::sigmoid, 0.1).dchosen == 0.1, close);
  BOOST_TEST(term_at(-1000, PreferenceKind::hinge).loss == 1001);
  BOOST_TEST(term_at(-1000, PreferenceKind::ipo).loss == 1000.5 * 1000.5);
}

BOOST_AUTO_TEST_CASE(small_losses_keep_their_digits) {
  const PreferenceTerm term = term_at(50, PreferenceKind::sigmoid);
  BOOST_TEST(term.loss == std::exp(-50.0), close);
  BOOST_TEST(term.dchosen == -std::exp(-50.0), close);
}

BOOST_AUTO_TEST_CASE(an_empty_completion_counts_as_one_token) {
  const PreferencePair empty{.chosen = {-1, -2, 3}, .rejected = {0, 0, 0}};
  const PreferenceTerm term = term_of(empty, {.kind = PreferenceKind::ipo, .beta = 0.5});
  BOOST_TEST(term.loss == (1.0 / 3 - 1) * (1.0 / 3 - 1), close);
  BOOST_TEST(term.drejected == -2 * (1.0 / 3 - 1), close);
}

BOOST_AUTO_TEST_CASE(micro_batches_add_up) {
  const std::vector<PreferencePair> all{pair,
                                        {.chosen = {-4, -3, 5}, .rejected = {-2, -2.5, 1}},
                                        {.chosen = {-1, -1.25, 2}, .rejected = {-2, -2.5, 3}}};
  for (const PreferenceKind kind : {PreferenceKind::sigmoid, PreferenceKind::ipo, PreferenceKind::hinge}) {
    const PreferenceOptions options{.kind = kind, .beta = 0.2};
    const auto whole = preference_loss(all, options);
    const auto first = preference_loss(std::span(all).first(1), options, 3);
    const auto rest = preference_loss(std::span(all).subspan(1), options, 3);
    BOOST_TEST(first.loss + rest.loss == whole.loss, close);
    BOOST_TEST(first.accuracy + rest.accuracy == whole.accuracy, close);
    BOOST_TEST(first.margin + rest.margin == whole.margin, close);
    BOOST_TEST(first.chosen_reward + rest.chosen_reward == whole.chosen_reward, close);
    BOOST_TEST(first.rejected_reward + rest.rejected_reward == whole.rejected_reward, close);
    BOOST_TEST(first.pairs[0].dchosen == whole.pairs[0].dchosen);
    BOOST_TEST(rest.pairs[1].drejected == whole.pairs[2].drejected);
    BOOST_TEST(whole.accuracy == 1.0 / 3, close);
    BOOST_TEST(whole.pairs[0].dchosen == term_of(pair, options).dchosen / 3, close);
  }
}

// Sequences are chosen and rejected ones in turn, and so are the references.
BOOST_AUTO_TEST_CASE(an_objective_makes_pairs_of_sequences) {
  const std::vector<double> references{-3.5, -7.5, -6, -1};
  const std::vector<PreferencePair> pairs{{.chosen = {-3, -3.5, 2}, .rejected = {-9, -7.5, 4}},
                                          {.chosen = {-4, -6, 1}, .rejected = {-2, -1, 1}}};
  const PreferenceLoss expected = preference_loss(pairs, {.beta = 0.3});
  PreferenceObjective objective(references, {.beta = 0.3});
  const ObjectiveShare first = objective(0, {.values = {-1, -2, -4, -1, -1, -3}, .offsets = {0, 2, 6}});
  const ObjectiveShare second = objective(2, {.values = {-4, -2}, .offsets = {0, 1, 2}});
  BOOST_TEST(first.loss + second.loss == expected.loss, close);
  BOOST_TEST(first.dlogp.front() == expected.pairs[0].dchosen, close);
  BOOST_TEST(first.dlogp.back() == expected.pairs[0].drejected, close);
  BOOST_TEST(second.dlogp.front() == expected.pairs[1].dchosen, close);
  BOOST_TEST(second.dlogp.back() == expected.pairs[1].drejected, close);
  const PreferenceLoss& result = objective.result();
  BOOST_TEST(result.loss == expected.loss, close);
  BOOST_TEST(result.accuracy == expected.accuracy, close);
  BOOST_TEST(result.margin == expected.margin, close);
  BOOST_TEST(result.chosen_reward == expected.chosen_reward, close);
  BOOST_TEST(result.rejected_reward == expected.rejected_reward, close);
}

BOOST_AUTO_TEST_CASE(a_batch_without_pairs) {
  const auto none = preference_loss({});
  BOOST_TEST(none.loss == 0);
  BOOST_TEST(none.accuracy == 0);
  BOOST_TEST(none.pairs.empty());
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  for (const double beta : {0.0, -0.1, infinity, nan})
    check_error<NotSupported>(refused({.beta = beta}),
                              "kformer::preference_loss: beta must be positive and finite, got " +
                                  (std::ostringstream() << beta).str());
  for (const double smoothing : {-0.1, 0.5, nan})
    check_error<NotSupported>(
        refused({.label_smoothing = smoothing}),
        "kformer::preference_loss: label_smoothing must be at least 0 and less than 0.5, got " +
            (std::ostringstream() << smoothing).str());
  check_error<NotSupported>(
      refused({.kind = PreferenceKind::ipo, .label_smoothing = 0.1}),
      "kformer::preference_loss: label_smoothing is for the kind sigmoid; with ipo it must be 0, got 0.1");
  check_error<NotSupported>(
      refused({.kind = static_cast<PreferenceKind>(7)}),
      "kformer::preference_loss: kind has the value 7, which its type does not name; choose one of: sigmoid, "
      "ipo, hinge");
}

BOOST_AUTO_TEST_CASE(bad_pairs_are_refused) {
  std::vector<PreferencePair> pairs{pair, pair};
  pairs[1].rejected.policy = nan;
  check_error<NotSupported>(
      [&] { preference_loss(pairs); },
      "kformer::preference_loss: pair 1: the rejected completion has the log-probabilities "
      "nan of the policy and -7.5 of the reference; expected finite numbers. The model has "
      "diverged");
  pairs[1] = pair;
  pairs[0].chosen.reference = -infinity;
  BOOST_CHECK_THROW(preference_loss(pairs), NotSupported);
  pairs[0] = pair;
  pairs[0].chosen.tokens = -2;
  check_error<DimensionMismatch>([&] { preference_loss(pairs); },
                                 "kformer::preference_loss: pair 0: the chosen completion has -2 tokens");
  pairs[0] = pair;
  check_error<DimensionMismatch>(
      [&] { preference_loss(pairs, {}, 1); },
      "kformer::preference_loss: the batch has 1 pairs; expected at least the 2 of this micro-batch, or 0");
  check_error<DimensionMismatch>(
      [&] { preference_loss(pairs, {}, -1); },
      "kformer::preference_loss: the batch has -1 pairs; expected at least the 2 of this micro-batch, or 0");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
