// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "kformer/core/error.hpp"
#include "kformer/data/rewards.hpp"
#include "kformer/train/group_advantages.hpp"
#include "kformer/train/policy_loss.hpp"
#include "objective/objective.hpp"

namespace kformer::drivers {

namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

// Completions for evaluation draw from streams that no training reaches.
constexpr std::int64_t evaluation_streams = std::int64_t(1) << 48;

// Of those that are not NaN.
PartialMean partial_mean(std::span<const double> values) {
  PartialMean part;
  for (const double v : values)
    if (!std::isnan(v)) part += {v, 1};
  return part;
}

/// How completions did.
struct Scores {
  std::vector<double> rewards{};            ///< Σ weight · reward
  std::vector<std::vector<double>> each{};  ///< by reward
  double tokens = 0;                        ///< of all completions
  double truncated = 0;                     ///< completions that `max_new_tokens` cut off
  double broken = 0;                        ///< completions that ended because no token had a probability
};

/// Completions of the model, and what they were rewarded with.
struct Samples {
  std::vector<TokenSequence> sequences;  ///< prompt and completion; the tokens of completions are targets
  std::vector<double> logp;              ///< of them, as the sampler says
  std::vector<std::uint8_t> mask;        ///< of them; 0: they do not count
  std::vector<std::int64_t> offsets{0};  ///< the first of each completion; the end
  Scores scores;
};

class PolicyObjective final : public TrainingObjective {
 public:
  PolicyObjective(const TrainDeck& deck, SequenceRanks ranks)
      : m_ranks(std::move(ranks)),
        m_policy(*deck.policy),
        m_keeps_weights(m_policy.keeps_first_weights(deck.adapter.has_value())),
        m_rewards_of_deck(deck.rewards.begin(), deck.rewards.end()),
        m_seq_len(static_cast<std::size_t>(deck.batch.seq_len)),
        m_options{.kind = m_policy.loss,
                  .epsilon_low = m_policy.epsilon_low,
                  .epsilon_high = m_policy.epsilon_high,
                  .delta = m_policy.delta,
                  .beta = m_policy.beta,
                  .max_completion_tokens = m_policy.max_new_tokens} {
    if (m_rewards_of_deck.size() > 1)
      for (std::size_t i = 0; i < m_rewards_of_deck.size(); ++i)
        m_reward_names.push_back(fmt::format("reward_{}_{}", i + 1, name_of(m_rewards_of_deck[i].kind)));
    m_columns = policy_figures(m_reward_names);
  }

  std::span<const FigureColumn> figures() const override { return m_columns; }
  std::string description() const override {
    std::string text = fmt::format("grpo, {} loss, groups of {}", name_of(m_policy.loss), m_policy.group_size);
    if (m_policy.updates > 1) text += fmt::format(", {} updates", m_policy.updates);
    if (m_policy.beta > 0)
      text += fmt::format(", beta {}; reference: {}", m_policy.beta,
                          m_keeps_weights ? "the weights before the first step" : "the model without adapters");
    text += "; rewards:";
    for (std::size_t i = 0; i < m_rewards_of_deck.size(); ++i)
      text += fmt::format("{} {} x {}", i == 0 ? "" : ",", m_rewards_of_deck[i].weight,
                          name_of(m_rewards_of_deck[i].kind));
    return text;
  }
  std::int64_t updates() const override { return m_policy.updates; }
  // Sampling, and the reference.
  double other_forwards() const override {
    return 1 / static_cast<double>(m_policy.updates) + (m_policy.beta > 0 ? 1 : 0);
  }

  bool needs_first_weights() const override { return m_keeps_weights; }
  void begin(Learner& learner, const TrainingData&, StepRange, const std::function<bool()>&) override {
    learner.keep_reference();
  }

  void open(const TrainingData& data, const PromptEncoder* encoder) override {
    m_encoder = encoder;
    m_train = data.train->prompts();
    m_validation = data.validation ? data.validation->prompts() : nullptr;
    m_rewards.emplace(m_rewards_of_deck);
    for (const PromptDataset* prompts : {m_train, m_validation})
      for (std::int64_t i = 0; prompts != nullptr && i < prompts->size(); ++i) m_rewards->check(prompts->at(i));
  }

  ObjectiveStep step(Learner& learner, const SequenceBatch& batch) override {
    const std::int64_t update = learner.steps_done() % m_policy.updates;
    if (update == 0) sample_groups(learner, batch);
    std::vector<double> reference;
    if (m_policy.beta > 0) reference = learner.reference_log_probabilities(m_samples.sequences).values;
    const PolicyBatch all = batch_of_step();
    PolicyStatistics statistics;
    std::int64_t unequal = 0;
    // A completion that the model could not write tells as much as one that it cannot judge.
    const bool broken = m_scores.broken > 0;
    const auto objective = [&](std::size_t first, const LogProbabilities& logp) {
      const auto own =
          std::ranges::lower_bound(batch.places, static_cast<std::int64_t>(first)) - batch.places.begin();
      const auto begin = static_cast<std::size_t>(m_samples.offsets[static_cast<std::size_t>(own)]),
                 count = logp.values.size();
      const auto part = [&](const auto& values) {
        return values.empty() ? std::span(values) : std::span(values).subspan(begin, count);
      };
      bool lost = broken;
      for (std::size_t i = 0; i < count; ++i) {
        unequal += logp.values[i] != m_samples.logp[begin + i];
        if (m_samples.mask[begin + i] == 0) continue;
        lost |= !std::isfinite(logp.values[i]) || !std::isfinite(m_samples.logp[begin + i]) ||
                (!reference.empty() && !std::isfinite(reference[begin + i]));
      }
      if (lost) return no_loss(logp);
      const PolicyLoss loss =
          policy_loss({.logp = logp.values,
                       .old_logp = part(m_samples.logp),
                       .reference_logp = part(reference),
                       .mask = part(m_samples.mask),
                       .offsets = logp.offsets,
                       .advantages = std::span(m_advantages.advantages).subspan(first, logp.sequences())},
                      m_options, all);
      statistics += loss.statistics;
      return ObjectiveShare{loss.loss, loss.dlogp};
    };
    ObjectiveStep result{learner.step(m_samples.sequences, objective)};
    // Without any target the trainer asks for no loss.
    if (broken) result.loss = result.gradient_norm = unknown;
    statistics = of_step(statistics);
    for (const auto& [name, part] : figures_of(m_scores)) result.figures[name] = part.mean();
    result.figures["equal_groups"] = static_cast<double>(m_advantages.equal_groups * m_policy.group_size) /
                                     static_cast<double>(m_scores.rewards.size());
    result.figures["ratio"] = statistics.mean_ratio();
    result.figures["clip_low"] = statistics.low_clip_fraction();
    result.figures["clip_high"] = statistics.high_clip_fraction();
    result.figures["kl"] = statistics.mean_kl();
    const double unequal_of_step = sum(static_cast<double>(unequal));
    result.figures["unequal_logp"] = update == 0 ? unequal_of_step : unknown;
    return result;
  }

  // Of the reward alone: the loss is minus its mean, so that a better policy has a lower one.
  Judgement judge(Learner& learner, const SequenceBatch& batch) override {
    const Samples samples =
        sample(learner, batch, *m_validation, 1, evaluation_streams + batch.indices.front());
    PartialFigures figures = figures_of(samples.scores);
    const PartialMean reward = figures.at("reward");
    for (const FigureColumn& column : m_columns) figures.try_emplace(column.name);
    const double loss = samples.scores.broken > 0 ? unknown : -reward.sum;
    return {.loss = {loss, reward.count}, .figures = std::move(figures)};
  }

 private:
  // A group may lie on several ranks.
  void sample_groups(Learner& learner, const SequenceBatch& batch) {
    m_samples = sample(learner, batch, *m_train, m_policy.group_size,
                       learner.steps_done() / m_policy.updates * batch.in_step);
    const Scores& own = m_samples.scores;
    m_scores = {.rewards = m_ranks.of_step(batch, own.rewards),
                .tokens = sum(own.tokens),
                .truncated = sum(own.truncated),
                .broken = sum(own.broken)};
    for (const std::vector<double>& rewards : own.each)
      m_scores.each.push_back(m_ranks.of_step(batch, rewards));
    m_advantages = group_advantages(m_scores.rewards, m_policy.group_size, m_policy.scale_rewards);
  }

  double sum(double own) const { return m_ranks.sum(std::span(&own, 1)).front(); }

  PolicyBatch batch_of_step() const {
    const std::vector<double> advantages(m_samples.sequences.size());  // are not read
    const PolicyBatch own = policy_batch({.logp = m_samples.logp,
                                          .mask = m_samples.mask,
                                          .offsets = m_samples.offsets,
                                          .advantages = advantages});
    return {std::ssize(m_scores.rewards), sum(own.tokens)};
  }

  PolicyStatistics of_step(const PolicyStatistics& s) const {
    const auto sums = m_ranks.sum(std::array{static_cast<double>(s.tokens), static_cast<double>(s.clipped_low),
                                             static_cast<double>(s.clipped_high), s.ratio_sum, s.kl_sum});
    return {.tokens = static_cast<std::int64_t>(sums[0]),
            .clipped_low = static_cast<std::int64_t>(sums[1]),
            .clipped_high = static_cast<std::int64_t>(sums[2]),
            .ratio_sum = sums[3],
            .kl_sum = sums[4]};
  }

  // A completion of each prompt, whose place says which of the streams from `first_stream` on it draws from.
  Samples sample(Learner& learner, const SequenceBatch& batch, const PromptDataset& prompts,
                 std::int64_t group_size, std::int64_t first_stream) {
    Samples samples;
    samples.scores.each.resize(m_rewards_of_deck.size());
    const std::vector<GeneratedSequence> completions = complete(learner, batch, first_stream);
    for (std::size_t i = 0; i < completions.size(); ++i) {
      add(completions[i], samples);
      judge(completions[i], prompts.at(batch.indices[i] / group_size), samples);
    }
    return samples;
  }

  // The streams of a call follow each other, and so do some of the places at a time.
  static std::vector<GeneratedSequence> complete(Learner& learner, const SequenceBatch& batch,
                                                 std::int64_t first_stream) {
    std::vector<GeneratedSequence> all;
    std::vector<std::vector<std::int32_t>> prompts;
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
      prompts.push_back(batch.sequences[i].ids);
      if (i + 1 < batch.sequences.size() && batch.places[i + 1] == batch.places[i] + 1) continue;
      std::ranges::move(learner.sample(prompts, first_stream + batch.places[i] + 1 - std::ssize(prompts)),
                        std::back_inserter(all));
      prompts.clear();
    }
    return all;
  }

  void add(const GeneratedSequence& s, Samples& samples) const {
    const bool cut = s.stopped == StopReason::length;
    const auto prompt = static_cast<std::size_t>(s.prompt_tokens);
    TokenSequence sequence{s.tokens, std::vector<std::int32_t>(m_seq_len, -100), {0}};
    sequence.ids.resize(m_seq_len, 0);
    for (std::size_t i = prompt; i < s.tokens.size(); ++i) {
      sequence.targets[i - 1] = s.tokens[i];
      samples.logp.push_back(s.log_probabilities[i]);
      samples.mask.push_back(cut && m_policy.mask_truncated ? 0 : 1);
    }
    samples.scores.truncated += cut;
    samples.scores.broken += s.stopped == StopReason::no_token;
    samples.scores.tokens += static_cast<double>(s.new_tokens());
    samples.offsets.push_back(std::ssize(samples.logp));
    samples.sequences.push_back(std::move(sequence));
  }

  void judge(const GeneratedSequence& s, const PromptSample& prompt, Samples& samples) {
    // What broke off is no completion, and has no reward.
    if (s.stopped == StopReason::no_token) {
      samples.scores.rewards.push_back(unknown);
      for (std::vector<double>& each : samples.scores.each) each.push_back(unknown);
      return;
    }
    std::span<const std::int32_t> ids(s.tokens);
    ids = ids.subspan(static_cast<std::size_t>(s.prompt_tokens));
    if (s.stopped == StopReason::end_of_text) ids = ids.first(ids.size() - 1);
    const std::string text = m_encoder->tokenizer().decode(ids);
    const RewardScore score =
        m_rewards->score({.prompt = prompt, .completion = text, .tokens = s.new_tokens()});
    samples.scores.rewards.push_back(score.total);
    for (std::size_t i = 0; i < score.each.size(); ++i) samples.scores.each[i].push_back(score.each[i]);
  }

  PartialFigures figures_of(const Scores& scores) const {
    const auto completions = static_cast<double>(scores.rewards.size());
    PartialFigures figures{{"reward", partial_mean(scores.rewards)},
                           {"completion_tokens", {scores.tokens, completions}},
                           {"truncated", {scores.truncated, completions}}};
    for (std::size_t i = 0; i < m_reward_names.size(); ++i)
      figures[m_reward_names[i]] = partial_mean(scores.each[i]);
    return figures;
  }

  SequenceRanks m_ranks;
  PolicyTable m_policy;
  bool m_keeps_weights;  // for the reference
  std::vector<RewardOptions> m_rewards_of_deck;
  std::size_t m_seq_len;
  PolicyOptions m_options;
  std::vector<std::string> m_reward_names;  // if there are several
  std::vector<FigureColumn> m_columns;
  const PromptEncoder* m_encoder = nullptr;
  const PromptDataset *m_train = nullptr, *m_validation = nullptr;
  std::optional<Rewards> m_rewards;
  Samples m_samples;  // of this rank
  Scores m_scores;    // of the step, by place
  GroupAdvantages m_advantages;
};

}  // namespace

std::vector<FigureColumn> policy_figures(const std::vector<std::string>& rewards) {
  const std::string grpo = "with [objective] kind = \"grpo\"";
  std::vector<FigureColumn> figures{{"reward", "mean of the sums of weighted rewards", grpo}};
  for (const std::string& name : rewards)
    figures.push_back({name, "mean of this reward, without its weight", grpo + " and several rewards"});
  for (const auto& [name, help] :
       {std::pair{"completion_tokens", "mean length of completions"},
        {"truncated", "share of completions that reached policy.max_new_tokens"},
        {"equal_groups", "share of groups whose rewards are all equal: nothing is learnt from them"},
        {"ratio", "mean ratio of probabilities, now over when it was sampled, of the tokens that count"},
        {"clip_low", "share of tokens that are clipped from below"},
        {"clip_high", "share of tokens that are clipped from above"},
        {"kl", "mean estimate of the divergence from the reference, in nats; 0 unless policy.beta > 0"},
        {"unequal_logp",
         "tokens whose log-probability by the sampler is not, to the bit, that of the trainer; "
         "NaN after the first update of completions"}})
    figures.push_back({name, help, grpo});
  return figures;
}

std::unique_ptr<TrainingObjective> make_policy_objective(const TrainDeck& deck, const SequenceRanks& ranks) {
  return std::make_unique<PolicyObjective>(deck, ranks);
}

}  // namespace kformer::drivers
