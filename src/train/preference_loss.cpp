// SPDX-License-Identifier: MIT
#include "kformer/train/preference_loss.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "kformer/core/error.hpp"
#include "kformer/core/option_checks.hpp"
#include "train/require.hpp"

namespace kformer {

namespace {

constexpr Impl::Require require{"preference_loss"};

void check_options(const PreferenceOptions& options) {
  Impl::require_enumerator("preference_loss", "kind", options.kind);
  require(std::isfinite(options.beta) && options.beta > 0, "beta must be positive and finite, got ",
          options.beta);
  require(options.label_smoothing >= 0 && options.label_smoothing < 0.5,
          "label_smoothing must be at least 0 and less than 0.5, got ", options.label_smoothing);
  require(options.label_smoothing == 0 || options.kind == PreferenceKind::sigmoid,
          "label_smoothing is for the kind sigmoid; with ", name_of(options.kind), " it must be 0, got ",
          options.label_smoothing);
}

void check_completion(const CompletionLogp& completion, const char* role, std::size_t pair) {
  require(std::isfinite(completion.policy) && std::isfinite(completion.reference), "pair ", pair, ": the ",
          role, " completion has the log-probabilities ", completion.policy, " of the policy and ",
          completion.reference, " of the reference; expected finite numbers. The model has diverged");
  if (completion.tokens < 0)
    throw DimensionMismatch("kformer::preference_loss: pair " + std::to_string(pair) + ": the " + role +
                            " completion has " + std::to_string(completion.tokens) + " tokens");
}

double ratio_of(const CompletionLogp& completion) { return completion.policy - completion.reference; }

double length_of(const CompletionLogp& completion) {
  return static_cast<double>(std::max<std::int64_t>(completion.tokens, 1));
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

double minus_log_sigmoid(double x) { return std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// ℓ with its derivatives by the two log-probabilities.
PreferenceTerm term_of(const PreferencePair& pair, const PreferenceOptions& options) {
  const double beta = options.beta, chosen = ratio_of(pair.chosen), rejected = ratio_of(pair.rejected);
  const double logit = beta * (chosen - rejected);
  PreferenceTerm term{.chosen_reward = beta * chosen, .rejected_reward = beta * rejected};
  switch (options.kind) {
    case PreferenceKind::sigmoid: {
      const double wrong = options.label_smoothing;
      term.loss = (1 - wrong) * minus_log_sigmoid(logit) + wrong * minus_log_sigmoid(-logit);
      term.dchosen = beta * (wrong * sigmoid(logit) - (1 - wrong) * sigmoid(-logit));
      term.drejected = -term.dchosen;
      break;
    }
    case PreferenceKind::ipo: {
      const double distance =
          chosen / length_of(pair.chosen) - rejected / length_of(pair.rejected) - 1 / (2 * beta);
      term.loss = distance * distance;
      term.dchosen = 2 * distance / length_of(pair.chosen);
      term.drejected = -2 * distance / length_of(pair.rejected);
      break;
    }
    case PreferenceKind::hinge:
      term.loss = std::max(1 - logit, 0.0);
      term.dchosen = logit < 1 ? -beta : 0;
      term.drejected = -term.dchosen;
      break;
  }
  return term;
}

}  // namespace

PreferenceLoss preference_loss(std::span<const PreferencePair> pairs, const PreferenceOptions& options,
                               std::int64_t batch_pairs) {
  check_options(options);
  if (batch_pairs != 0 && batch_pairs < std::ssize(pairs))
    throw DimensionMismatch("kformer::preference_loss: the batch has " + std::to_string(batch_pairs) +
                            " pairs; expected at least the " + std::to_string(pairs.size()) +
                            " of this micro-batch, or 0");
  const double count = batch_pairs != 0 ? static_cast<double>(batch_pairs) : static_cast<double>(pairs.size());
  PreferenceLoss result;
  result.pairs.reserve(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    check_completion(pairs[i].chosen, "chosen", i);
    check_completion(pairs[i].rejected, "rejected", i);
    PreferenceTerm term = term_of(pairs[i], options);
    term.dchosen /= count;
    term.drejected /= count;
    result.loss += term.loss / count;
    result.accuracy += (term.margin() > 0 ? 1 : 0) / count;
    result.margin += term.margin() / count;
    result.chosen_reward += term.chosen_reward / count;
    result.rejected_reward += term.rejected_reward / count;
    result.pairs.push_back(term);
  }
  return result;
}

PreferenceObjective::PreferenceObjective(std::vector<double> references, const PreferenceOptions& options)
    : m_references(std::move(references)), m_options(options) {
  if (m_references.size() % 2 != 0)
    throw DimensionMismatch("kformer::PreferenceObjective: got references of " +
                            std::to_string(m_references.size()) +
                            " sequences; expected an even number, a chosen and a rejected one of each pair");
}

ObjectiveShare PreferenceObjective::operator()(std::size_t first, const LogProbabilities& logp) {
  const std::size_t sequences = logp.sequences(), all = m_references.size();
  if (first % 2 != 0 || sequences % 2 != 0 || first > all || sequences > all - first)
    throw DimensionMismatch("kformer::PreferenceObjective: got a micro-batch of " + std::to_string(sequences) +
                            " sequences from number " + std::to_string(first) + " on, of " +
                            std::to_string(all) + "; expected whole pairs, so make the micro-batch even");
  const auto completion = [&](std::size_t i) {
    return CompletionLogp{logp.sum(i), m_references[first + i], std::ssize(logp.of(i))};
  };
  std::vector<PreferencePair> pairs;
  for (std::size_t i = 0; i < sequences; i += 2) pairs.push_back({completion(i), completion(i + 1)});
  const PreferenceLoss part = preference_loss(pairs, m_options, static_cast<std::int64_t>(all / 2));
  ObjectiveShare share{.loss = part.loss, .dlogp = {}};
  for (std::size_t i = 0; i < sequences; ++i) {
    const PreferenceTerm& term = part.pairs[i / 2];
    share.dlogp.insert(share.dlogp.end(), logp.of(i).size(), i % 2 == 0 ? term.dchosen : term.drejected);
  }
  m_result.loss += part.loss;
  m_result.accuracy += part.accuracy;
  m_result.margin += part.margin;
  m_result.chosen_reward += part.chosen_reward;
  m_result.rejected_reward += part.rejected_reward;
  m_result.pairs.insert(m_result.pairs.end(), part.pairs.begin(), part.pairs.end());
  return share;
}

}  // namespace kformer
