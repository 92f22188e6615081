// SPDX-License-Identifier: MIT
#include "kformer/train/policy_loss.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
const auto close = boost::test_tools::tolerance(1e-14);
constexpr PolicyKind kinds[] = {PolicyKind::grpo, PolicyKind::dr_grpo, PolicyKind::dapo, PolicyKind::bnpo};

/// Completions with their log-probabilities.
struct Sampled {
  std::vector<double> logp, old_logp, reference_logp;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> offsets;
  std::vector<double> advantages;

  PolicyLossOperands operands() const { return {logp, old_logp, reference_logp, mask, offsets, advantages}; }
};

/// One completion of one token with this ratio.
Sampled one_token(double ratio, double advantage) {
  return {.logp = {std::log(ratio) - 3}, .old_logp = {-3}, .offsets = {0, 1}, .advantages = {advantage}};
}

/// Completions of 4, 0, 1 and 6 tokens, of which 3, 0, 1 and 5 count; old log-probabilities are about those of `logp`.
Sampled random_completions() {
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  Sampled all{.mask = {1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 1},
              .offsets = {0, 4, 4, 5, 11},
              .advantages = {1.5, -2, -0.75, 0.5}};
  for (int i = 0; i < 11; ++i) {
    all.logp.push_back(-2 + normal(generator));
    all.old_logp.push_back(all.logp.back() + 0.3 * normal(generator));
    all.reference_logp.push_back(all.logp.back() + 0.5 * normal(generator));
  }
  return all;
}

PolicyOptions options_of(PolicyKind kind) { return {.kind = kind, .max_completion_tokens = 8}; }

/// The completions first … last − 1 of `all`.
Sampled part_of(const Sampled& all, std::size_t first, std::size_t last) {
  const auto begin = all.offsets[first], end = all.offsets[last];
  const auto cut = [&](const auto& values) {
    return std::vector(values.begin() + begin, values.begin() + end);
  };
  Sampled part{cut(all.logp), cut(all.old_logp), cut(all.reference_logp), cut(all.mask), {}, {}};
  for (std::size_t i = first; i <= last; ++i) part.offsets.push_back(all.offsets[i] - begin);
  part.advantages.assign(all.advantages.begin() + static_cast<std::ptrdiff_t>(first),
                         all.advantages.begin() + static_cast<std::ptrdiff_t>(last));
  return part;
}

auto refused(const PolicyOptions& options) {
  return [=] { policy_loss(one_token(1, 1).operands(), options); };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(policy_losses)

BOOST_AUTO_TEST_CASE(clipping_by_hand) {
  struct Case {
    double ratio, advantage, loss, slope;
    int low, high;
  };
  for (const Case& c : {Case{1.1, 2, -2.2, -2.2, 0, 0}, Case{0.9, -2, 1.8, 1.8, 0, 0},
                        Case{1.5, 2, -2.6, 0, 0, 1},  // no more is gained
                        Case{1.5, -2, 3, 3, 0, 0},    // but all of it lost
                        Case{0.5, -2, 1.8, 0, 1, 0},  //
                        Case{0.5, 2, -1, -1, 0, 0},   //
                        Case{4, -2, 6, 0, 0, 0},      // δ
                        Case{4, 2, -2.6, 0, 0, 1}}) {
    const auto sampled = one_token(c.ratio, c.advantage);
    const auto result = policy_loss(sampled.operands(), {.epsilon_low = 0.1, .epsilon_high = 0.3, .delta = 3});
    BOOST_TEST_CONTEXT("ratio " << c.ratio << ", advantage " << c.advantage) {
      BOOST_TEST(result.loss == c.loss, close);
      BOOST_TEST(result.dlogp[0] == c.slope, close);
      BOOST_TEST(result.statistics.clipped_low == c.low);
      BOOST_TEST(result.statistics.clipped_high == c.high);
      BOOST_TEST(result.statistics.mean_ratio() == c.ratio, close);
    }
  }
}

// Without room to change, a policy still learns from what it sampled itself.
BOOST_AUTO_TEST_CASE(a_ratio_at_a_limit_is_not_clipped) {
  for (const double advantage : {2.0, -2.0}) {
    const auto result = policy_loss(one_token(1, advantage).operands(), {.epsilon_low = 0, .epsilon_high = 0});
    BOOST_TEST(result.dlogp[0] == -advantage);
    BOOST_TEST(result.statistics.clipped_low + result.statistics.clipped_high == 0);
  }
}

BOOST_AUTO_TEST_CASE(without_delta_no_ratio_is_too_large) {
  const auto result = policy_loss(one_token(40, -2).operands(), {});
  BOOST_TEST(result.loss == 80, close);
  BOOST_TEST(result.dlogp[0] == 80, close);
}

BOOST_AUTO_TEST_CASE(divergence_by_hand) {
  Sampled sampled = one_token(1, 0);
  sampled.reference_logp = {sampled.logp[0] + std::log(2.0)};
  const auto result = policy_loss(sampled.operands(), {.beta = 0.5});
  BOOST_TEST(result.loss == 0.5 * (1 - std::log(2.0)), close);
  BOOST_TEST(result.dlogp[0] == -0.5, close);
  BOOST_TEST(result.statistics.mean_kl() == 1 - std::log(2.0), close);
}

// Where a token is clipped, the divergence still draws it to the reference.
BOOST_AUTO_TEST_CASE(clipped_tokens_keep_their_divergence) {
  Sampled sampled = one_token(1.5, 1);
  sampled.reference_logp = {sampled.logp[0] - std::log(2.0)};
  const auto result = policy_loss(sampled.operands(), {.beta = 0.5});
  BOOST_TEST(result.dlogp[0] == 0.25, close);
  BOOST_TEST(result.loss == -1.2 + 0.5 * (0.5 + std::log(2.0) - 1), close);
}

BOOST_AUTO_TEST_CASE(what_losses_are_averaged_over) {
  // Ratios of 1: the loss of a token is minus the advantage.
  Sampled sampled{.logp = {-1, -1, -1, -1, -1},
                  .old_logp = {-1, -1, -1, -1, -1},
                  .mask = {1, 0, 1, 1, 1},
                  .offsets = {0, 2, 5},
                  .advantages = {6, -2}};
  const auto with = [&](PolicyKind kind) { return policy_loss(sampled.operands(), options_of(kind)); };
  BOOST_TEST(with(PolicyKind::grpo).loss == -2, close);
  BOOST_TEST(with(PolicyKind::dr_grpo).loss == 0, close);
  BOOST_TEST(with(PolicyKind::dr_grpo).dlogp[0] == -6.0 / 16, close);
  BOOST_TEST(with(PolicyKind::grpo).dlogp[4] == 2.0 / 6, close);
  BOOST_TEST(with(PolicyKind::grpo).dlogp[1] == 0);
  for (const PolicyKind kind : {PolicyKind::dapo, PolicyKind::bnpo}) {
    BOOST_TEST(with(kind).loss == 0, close);
    BOOST_TEST(with(kind).dlogp[0] == -1.5, close);
  }
  // A generation of two steps, with 6 tokens on average.
  BOOST_TEST(policy_loss(sampled.operands(), {}, {.tokens = 6}).dlogp[0] == -1, close);
  BOOST_TEST(policy_loss(sampled.operands(), {}, {.tokens = 2.5}).dlogp[0] == -2.4, close);
}

// What an untrained step must give, whatever the kind: no ratio but 1, bit for bit.
BOOST_AUTO_TEST_CASE(an_unchanged_policy_has_ratios_of_1) {
  Sampled sampled = random_completions();
  const auto changed = policy_loss(sampled.operands(), {.beta = 0.1});
  BOOST_TEST(changed.statistics.mean_ratio() != 1);
  sampled.old_logp = sampled.logp;
  sampled.reference_logp = sampled.logp;
  for (const PolicyKind kind : kinds) {
    PolicyOptions options = options_of(kind);
    options.beta = 0.1;
    const auto result = policy_loss(sampled.operands(), options);
    BOOST_TEST(result.statistics.mean_ratio() == 1);
    BOOST_TEST(result.statistics.clipped_low + result.statistics.clipped_high == 0);
    BOOST_TEST(result.statistics.mean_kl() == 0);
    Sampled on_policy = sampled;
    on_policy.old_logp.clear();
    const auto same = policy_loss(on_policy.operands(), options);
    BOOST_TEST(same.loss == result.loss);
    BOOST_TEST(same.dlogp == result.dlogp, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(derivatives_are_those_of_the_loss) {
  const double step = 1e-6;
  for (const PolicyKind kind : kinds)
    for (const double beta : {0.0, 0.2}) {
      Sampled sampled = random_completions();
      if (beta == 0) sampled.reference_logp.clear();
      PolicyOptions options = options_of(kind);
      options.beta = beta;
      options.delta = 1.4;
      const auto result = policy_loss(sampled.operands(), options);
      int moving = 0;
      for (std::size_t t = 0; t < sampled.logp.size(); ++t) {
        const double here = sampled.logp[t];
        const auto loss_at = [&](double logp) {
          sampled.logp[t] = logp;
          return policy_loss(sampled.operands(), options).loss;
        };
        const double slope = (loss_at(here + step) - loss_at(here - step)) / (2 * step);
        sampled.logp[t] = here;
        BOOST_TEST(std::abs(result.dlogp[t] - slope) < 1e-9);
        moving += result.dlogp[t] != 0 ? 1 : 0;
      }
      BOOST_TEST(moving >= 4);
    }
}

BOOST_AUTO_TEST_CASE(large_ratios_do_not_overflow) {
  for (const double ratio : {-1000.0, 1000.0, 350.0})
    for (const double advantage : {-1.0, 1.0}) {
      Sampled sampled{.logp = {-2000 + ratio},
                      .old_logp = {-2000},
                      .reference_logp = {-2000 + 2 * ratio},
                      .offsets = {0, 1},
                      .advantages = {advantage}};
      const auto result = policy_loss(sampled.operands(), {.beta = 1});
      BOOST_TEST(std::isfinite(result.loss));
      BOOST_TEST(std::isfinite(result.dlogp[0]));
      BOOST_TEST(std::isfinite(result.statistics.mean_ratio()));
      BOOST_TEST(std::isfinite(result.statistics.mean_kl()));
      // The divergence falls towards the reference, where it is 0.
      BOOST_TEST((ratio > 0 ? result.dlogp[0] < 0 || advantage < 0 : result.dlogp[0] > 0));
      // With δ nothing is large.
      sampled.reference_logp.clear();
      BOOST_TEST(std::abs(policy_loss(sampled.operands(), {.delta = 10}).loss) <= 10);
    }
}

// The tangent of exp in 300.
BOOST_AUTO_TEST_CASE(derivatives_of_large_ratios_are_those_of_the_loss) {
  const auto at = [](double logp) {
    const Sampled sampled{.logp = {logp}, .old_logp = {-400}, .offsets = {0, 1}, .advantages = {-1}};
    return policy_loss(sampled.operands(), {});
  };
  const auto near = boost::test_tools::tolerance(1e-6);
  for (const double logp : {-101.0, -100.0, -99.0, -20.0}) {
    const double slope = (at(logp + 1e-5).loss - at(logp - 1e-5).loss) / 2e-5;
    BOOST_TEST(at(logp).dlogp[0] == slope, boost::test_tools::tolerance(1e-4));
  }
  BOOST_TEST(at(-90).loss == 11 * at(-100).loss, near);
}

BOOST_AUTO_TEST_CASE(small_divergences_keep_their_digits) {
  Sampled sampled = one_token(1, 0);
  sampled.reference_logp = {sampled.logp[0] + 1e-6};
  const double apart = sampled.reference_logp[0] - sampled.logp[0];
  const auto result = policy_loss(sampled.operands(), {.beta = 1});
  BOOST_TEST(result.loss == apart * apart / 2, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(result.dlogp[0] == -apart - apart * apart / 2, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(tokens_that_do_not_count_are_not_read) {
  Sampled sampled = random_completions();
  for (const PolicyKind kind : kinds) {
    PolicyOptions options = options_of(kind);
    options.beta = 0.1;
    const auto before = policy_loss(sampled.operands(), options);
    Sampled hostile = sampled;
    for (const std::size_t t : {2u, 9u})
      hostile.logp[t] = hostile.old_logp[t] = hostile.reference_logp[t] = nan;
    const auto after = policy_loss(hostile.operands(), options);
    BOOST_TEST(after.loss == before.loss);
    BOOST_TEST(after.dlogp == before.dlogp, boost::test_tools::per_element());
    BOOST_TEST(after.dlogp[2] == 0);
    BOOST_TEST(after.statistics.tokens == 9);
  }
}

BOOST_AUTO_TEST_CASE(micro_batches_add_up) {
  const Sampled all = random_completions();
  for (const PolicyKind kind : kinds) {
    PolicyOptions options = options_of(kind);
    options.beta = 0.1;
    const auto whole = policy_loss(all.operands(), options);
    for (const std::size_t cut : {1u, 2u, 3u}) {
      const Sampled first = part_of(all, 0, cut), rest = part_of(all, cut, 4);
      PolicyBatch batch = policy_batch(first.operands());
      batch.completions += policy_batch(rest.operands()).completions;
      batch.tokens += policy_batch(rest.operands()).tokens;
      const auto a = policy_loss(first.operands(), options, batch),
                 b = policy_loss(rest.operands(), options, batch);
      BOOST_TEST(a.loss + b.loss == whole.loss, close);
      auto dlogp = a.dlogp;
      dlogp.insert(dlogp.end(), b.dlogp.begin(), b.dlogp.end());
      BOOST_TEST(dlogp == whole.dlogp, boost::test_tools::per_element());
      PolicyStatistics statistics = a.statistics;
      statistics += b.statistics;
      BOOST_TEST(statistics.tokens == whole.statistics.tokens);
      BOOST_TEST(statistics.clipped_low == whole.statistics.clipped_low);
      BOOST_TEST(statistics.clipped_high == whole.statistics.clipped_high);
      BOOST_TEST(statistics.mean_kl() == whole.statistics.mean_kl(), close);
      BOOST_TEST(statistics.mean_ratio() == whole.statistics.mean_ratio(), close);
      BOOST_TEST(statistics.low_clip_fraction() == whole.statistics.low_clip_fraction());
    }
    BOOST_TEST(whole.statistics.high_clip_fraction() > 0);
    BOOST_TEST(whole.statistics.high_clip_fraction() == static_cast<double>(whole.statistics.clipped_high) / 9);
  }
}

BOOST_AUTO_TEST_CASE(nothing_to_learn) {
  for (const PolicyKind kind : kinds) {
    const Sampled none{.offsets = {0}}, empty{.offsets = {0, 0, 0}, .advantages = {1, -1}},
        masked{.logp = {nan}, .mask = {0}, .offsets = {0, 1}, .advantages = {1}};
    for (const Sampled& sampled : {none, empty, masked}) {
      const auto result = policy_loss(sampled.operands(), options_of(kind));
      BOOST_TEST(result.loss == 0);
      BOOST_TEST(result.dlogp.size() == sampled.logp.size());
      BOOST_TEST(result.statistics.mean_ratio() == 0);
      for (const double d : result.dlogp) BOOST_TEST(d == 0);
    }
  }
  // An empty completion counts among those of grpo.
  Sampled sampled = one_token(1, 1);
  sampled.offsets = {0, 1, 1};
  sampled.advantages = {1, -1};
  BOOST_TEST(policy_loss(sampled.operands(), options_of(PolicyKind::grpo)).loss == -0.5);
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  check_error<NotSupported>(
      refused({.epsilon_low = -0.1}),
      "kformer::policy_loss: epsilon_low and epsilon_high must be finite and not negative, "
      "got -0.1 and 0.2");
  BOOST_CHECK_THROW(refused({.epsilon_low = nan})(), NotSupported);
  BOOST_CHECK_THROW(refused({.epsilon_high = -1})(), NotSupported);
  BOOST_CHECK_THROW(refused({.epsilon_high = infinity})(), NotSupported);
  for (const double delta : {1.2, -1.0, nan, infinity})
    BOOST_CHECK_THROW(refused({.delta = delta})(), NotSupported);
  check_error<NotSupported>(
      refused({.delta = 1.2}),
      "kformer::policy_loss: delta must be finite and more than 1 + epsilon_high = 1.2, or 0 "
      "for no limit, got 1.2");
  for (const double beta : {-0.1, nan, infinity}) BOOST_CHECK_THROW(refused({.beta = beta})(), NotSupported);
  check_error<NotSupported>(refused({.beta = -0.1}),
                            "kformer::policy_loss: beta must be finite and not negative, got -0.1");
  check_error<NotSupported>(
      refused({.kind = PolicyKind::dr_grpo}),
      "kformer::policy_loss: dr_grpo divides by max_completion_tokens; expected at least 1, got 0");
  check_error<NotSupported>(
      refused({.kind = static_cast<PolicyKind>(9)}),
      "kformer::policy_loss: kind has the value 9, which its type does not name; choose one of: "
      "grpo, dr_grpo, dapo, bnpo");
}

BOOST_AUTO_TEST_CASE(extents_that_do_not_match_are_refused) {
  const auto mismatch = [](const auto& change, const std::string& expected) {
    Sampled sampled = random_completions();
    change(sampled);
    const auto extents = [&] {
      std::ostringstream text;
      text << "logp[" << sampled.logp.size() << "] old_logp[" << sampled.old_logp.size() << "] reference_logp["
           << sampled.reference_logp.size() << "] mask[" << sampled.mask.size() << "] offsets["
           << sampled.offsets.size() << "] advantages[" << sampled.advantages.size() << "]";
      return text.str();
    };
    check_error<DimensionMismatch>(
        [&] { policy_loss(sampled.operands(), {.beta = 1}); },
        "kformer::policy_loss: extents do not match: " + extents() + "; expected " + expected);
  };
  mismatch([](Sampled& s) { s.old_logp.pop_back(); }, "old_logp to be empty or as logp");
  mismatch([](Sampled& s) { s.mask.pop_back(); }, "mask to be empty or as logp");
  mismatch([](Sampled& s) { s.advantages.pop_back(); }, "one offset more than advantages");
  mismatch([](Sampled& s) { s.offsets.clear(); }, "one offset more than advantages");
  const std::string ascending = "offsets to ascend from 0 to the number of tokens";
  mismatch([](Sampled& s) { s.offsets[0] = 1; }, ascending);
  mismatch([](Sampled& s) { s.offsets[1] = 12; }, ascending);
  mismatch([](Sampled& s) { s.offsets[4] = 10; }, ascending);
  mismatch([](Sampled& s) { s.reference_logp.clear(); }, "reference_logp as logp, because beta is positive");
  const Sampled sampled = random_completions();
  check_error<DimensionMismatch>(
      [&] { policy_loss(sampled.operands()); },
      "kformer::policy_loss: extents do not match: logp[11] old_logp[11] "
      "reference_logp[11] mask[11] offsets[5] advantages[4]; expected reference_logp "
      "to be empty, because beta is 0");
  check_error<DimensionMismatch>([&] { policy_batch({.advantages = sampled.advantages}); },
                                 "kformer::policy_batch: extents do not match: logp[0] old_logp[0] "
                                 "reference_logp[0] mask[0] offsets[0] advantages[4]; expected one offset more "
                                 "than advantages");
}

BOOST_AUTO_TEST_CASE(batches_that_are_too_small_are_refused) {
  Sampled sampled = random_completions();
  sampled.reference_logp.clear();
  const auto with = [&](PolicyKind kind, const PolicyBatch& batch) {
    return [=] { policy_loss(sampled.operands(), options_of(kind), batch); };
  };
  for (const PolicyKind kind : {PolicyKind::grpo, PolicyKind::dr_grpo})
    check_error<DimensionMismatch>(
        with(kind, {.completions = 3, .tokens = 100}),
        "kformer::policy_loss: the batch has 3 completions; this micro-batch has 4. Add "
        "up what policy_batch returns for all micro-batches of the step");
  check_error<DimensionMismatch>(
      with(PolicyKind::bnpo, {.completions = 4, .tokens = 8}),
      "kformer::policy_loss: the batch has 8 tokens; this micro-batch has 9. Add up what "
      "policy_batch returns for all micro-batches of the step");
  check_error<DimensionMismatch>(
      with(PolicyKind::dapo, {.completions = 4}),
      "kformer::policy_loss: the batch has 0 tokens; this micro-batch has 9. Add up what "
      "policy_batch returns for all micro-batches of the step");
  BOOST_CHECK_THROW(with(PolicyKind::dapo, {.tokens = nan})(), DimensionMismatch);
  BOOST_CHECK_THROW(with(PolicyKind::bnpo, {.tokens = infinity})(), DimensionMismatch);
  PolicyOptions options = options_of(PolicyKind::dr_grpo);
  options.max_completion_tokens = 5;
  check_error<DimensionMismatch>([&] { policy_loss(sampled.operands(), options); },
                                 "kformer::policy_loss: completion 3 has 6 tokens; expected at most "
                                 "max_completion_tokens = 5");
}

BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite_are_refused) {
  const auto refuse = [](const auto& change, const std::string& text) {
    Sampled sampled = random_completions();
    change(sampled);
    check_error<NotSupported>([&] { policy_loss(sampled.operands(), {.beta = 1}); }, text);
  };
  const auto token = [](const std::string& what) {
    return "kformer::policy_loss: completion 3: token 1 has the " + what +
           "; expected a finite number. A model has diverged, or the token should not count";
  };
  refuse([](Sampled& s) { s.logp[6] = nan; }, token("logp nan"));
  refuse([](Sampled& s) { s.old_logp[6] = -infinity; }, token("old_logp -inf"));
  refuse([](Sampled& s) { s.reference_logp[6] = infinity; }, token("reference_logp inf"));
  refuse([](Sampled& s) { s.advantages[1] = nan; },
         "kformer::policy_loss: completion 1 has the advantage nan; expected a finite number");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
