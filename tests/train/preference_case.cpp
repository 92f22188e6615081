// SPDX-License-Identifier: MIT
// What TRL computes in float64, recorded by scripts/make_preference_case.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kformer/core/enum_names.hpp"
#include "kformer/train/group_advantages.hpp"
#include "kformer/train/policy_loss.hpp"
#include "kformer/train/preference_loss.hpp"
#include "support/distance.hpp"
#include "support/source_files.hpp"

namespace kformer::Testing {
namespace {

using nlohmann::json;
using Numbers = std::vector<double>;

json recorded(const std::string& name) {
  std::ifstream file(test_data("preference_case/" + name + ".json"));
  BOOST_REQUIRE(file);
  return json::parse(file);
}

template <NamedEnum Enum>
Enum from_name(const std::string& name) {
  const auto place = std::ranges::find(names_of<Enum>, name);
  BOOST_REQUIRE(place != names_of<Enum>.end());
  return static_cast<Enum>(place - names_of<Enum>.begin());
}

/// Within 1e-12 of the largest.
void check_close(const Numbers& found, const Numbers& expected) {
  const double error = distance(found, expected), size = largest(expected);
  BOOST_TEST(error <= 1e-12 * size, error << " of " << size);
}

std::vector<PreferencePair> pairs_of(const json& all) {
  const auto completion = [](const json& of) {
    return CompletionLogp{of.at("policy"), of.at("reference"), of.at("tokens")};
  };
  std::vector<PreferencePair> pairs;
  for (std::size_t i = 0; i < all.at("chosen").size(); ++i)
    pairs.push_back({completion(all.at("chosen")[i]), completion(all.at("rejected")[i])});
  return pairs;
}

/// The micro-batches of a case, one after another.
struct Accumulated {
  double loss = 0;
  Numbers dlogp;
  PolicyStatistics statistics;
};

Accumulated in_micro_batches(const json& all, const json& of_case) {
  const PolicyOptions options{.kind = from_name<PolicyKind>(of_case.at("kind")),
                              .epsilon_low = of_case.at("epsilon_low"),
                              .epsilon_high = of_case.at("epsilon_high"),
                              .delta = of_case.at("delta"),
                              .beta = of_case.at("beta"),
                              .max_completion_tokens = all.at("max_completion_tokens")};
  const Numbers logp = all.at("logp"), old_logp = all.at("old_logp"), reference_logp = all.at("reference_logp");
  const std::vector<std::uint8_t> mask = all.at("mask");
  const std::vector<std::int64_t> offsets = all.at("offsets");
  const Numbers advantages = all.at("advantages");
  const std::size_t count = of_case.at("micro_batches"), size = advantages.size() / count;
  const double of_generation = of_case.at("micro_batches_of_generation");
  Accumulated sum;
  for (std::size_t first = 0; first < advantages.size(); first += size) {
    const auto begin = static_cast<std::size_t>(offsets[first]);
    const auto tokens = static_cast<std::size_t>(offsets[first + size]) - begin;
    std::vector<std::int64_t> own(offsets.begin() + static_cast<std::ptrdiff_t>(first),
                                  offsets.begin() + static_cast<std::ptrdiff_t>(first + size + 1));
    for (std::int64_t& offset : own) offset -= offsets[first];
    PolicyLossOperands operands{.logp = std::span(logp).subspan(begin, tokens),
                                .mask = std::span(mask).subspan(begin, tokens),
                                .offsets = own,
                                .advantages = std::span(advantages).subspan(first, size)};
    if (!of_case.at("on_policy")) operands.old_logp = std::span(old_logp).subspan(begin, tokens);
    if (options.beta > 0) operands.reference_logp = std::span(reference_logp).subspan(begin, tokens);
    PolicyBatch batch{.completions = std::ssize(advantages)};
    const double micro_batches = static_cast<double>(count);
    batch.tokens = options.kind == PolicyKind::bnpo
                       ? policy_batch(operands).tokens * micro_batches
                       : of_case.at("tokens_of_generation").get<double>() * micro_batches / of_generation;
    const PolicyLoss part = policy_loss(operands, options, batch);
    sum.loss += part.loss;
    sum.dlogp.insert(sum.dlogp.end(), part.dlogp.begin(), part.dlogp.end());
    sum.statistics += part.statistics;
  }
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(preference_case)

BOOST_AUTO_TEST_CASE(preferences) {
  const json all = recorded("preference");
  const auto pairs = pairs_of(all);
  BOOST_TEST(all.at("cases").size() == 8u);
  for (const json& of_case : all.at("cases")) {
    BOOST_TEST_CONTEXT(of_case.dump().substr(0, 60)) {
      const auto found = preference_loss(pairs, {.kind = from_name<PreferenceKind>(of_case.at("kind")),
                                                 .beta = of_case.at("beta"),
                                                 .label_smoothing = of_case.at("label_smoothing")});
      Numbers dchosen, drejected;
      for (const PreferenceTerm& term : found.pairs) {
        dchosen.push_back(term.dchosen);
        drejected.push_back(term.drejected);
      }
      check_close({found.loss}, {of_case.at("loss")});
      check_close(dchosen, of_case.at("dchosen"));
      check_close(drejected, of_case.at("drejected"));
      check_close({found.accuracy}, {of_case.at("accuracy")});
      check_close({found.margin}, {of_case.at("margin")});
      check_close({found.chosen_reward}, {of_case.at("chosen_reward")});
      check_close({found.rejected_reward}, {of_case.at("rejected_reward")});
    }
  }
}

BOOST_AUTO_TEST_CASE(policies) {
  const json all = recorded("policy");
  BOOST_TEST(all.at("cases").size() == 25u);
  for (const json& of_case : all.at("cases")) {
    BOOST_TEST_CONTEXT(of_case.dump().substr(0, 200)) {
      const Accumulated found = in_micro_batches(all, of_case);
      check_close({found.loss}, {of_case.at("loss")});
      check_close(found.dlogp, of_case.at("dlogp"));
      check_close({found.statistics.mean_kl()}, {of_case.at("kl")});
      BOOST_TEST(found.statistics.clipped_low == of_case.at("clipped_low").get<int>());
      BOOST_TEST(found.statistics.clipped_high == of_case.at("clipped_high").get<int>());
    }
  }
}

BOOST_AUTO_TEST_CASE(advantages) {
  const json all = recorded("advantages");
  BOOST_TEST(all.at("cases").size() == 18u);
  for (const json& of_case : all.at("cases")) {
    BOOST_TEST_CONTEXT(of_case.dump().substr(0, 200)) {
      Numbers rewards;
      for (const json& reward : of_case.at("rewards"))
        rewards.push_back(reward.is_null() ? std::numeric_limits<double>::quiet_NaN() : reward.get<double>());
      check_close(
          group_advantages(rewards, of_case.at("group_size"), from_name<RewardScale>(of_case.at("scale")))
              .advantages,
          of_case.at("advantages"));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
