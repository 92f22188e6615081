// SPDX-License-Identifier: MIT
#include "decks/train/policy_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "decks/sweep/sweep_checks.hpp"

namespace kformer::Impl::schema {
namespace {

using Path = std::vector<std::string>;

class PolicyCheck {
 public:
  PolicyCheck(const TrainDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics)
      : m_deck(deck), m_policy(*deck.policy), m_loaded(loaded), m_diagnostics(diagnostics) {}

  void length() {
    if (m_policy.max_new_tokens >= m_deck.batch.seq_len)
      error({"policy", "max_new_tokens"},
            fmt::format("'policy.max_new_tokens' = {} leaves no room for a prompt in batch.seq_len = {}",
                        m_policy.max_new_tokens, m_deck.batch.seq_len));
  }

  void sizes() {
    const std::int64_t sequences = m_deck.batch.sequences;
    check_groups(m_policy, {"batch", "sequences"}, sequences, m_loaded, m_diagnostics);
    check_sample_batch(m_policy, "batch.sequences", sequences, m_loaded, m_diagnostics);
    const std::int64_t updates = m_policy.updates;
    const auto whole = [&](const Path& path, std::int64_t steps) {
      if (steps % updates != 0)
        error(path,
              fmt::format("'{}.{}' = {} must be a multiple of policy.updates = {}: completions are not saved",
                          path[0], path[1], steps, updates));
    };
    if (m_deck.schedule.steps) whole({"schedule", "steps"}, *m_deck.schedule.steps);
    if (m_deck.checkpoint) whole({"checkpoint", "every_steps"}, m_deck.checkpoint->every_steps);
    // An early stop, too, leaves a checkpoint.
    if (m_deck.early_stop && m_deck.evaluation)
      whole({"evaluation", "every_steps"}, m_deck.evaluation->every_steps);
  }

  // That the model which samples is the model which learns.
  void model() {
    check_sampler(m_policy, m_deck.adapter, m_loaded, m_diagnostics);
    if (m_policy.delta > 0 && m_policy.delta <= 1 + m_policy.epsilon_high)
      error({"policy", "delta"},
            fmt::format("'policy.delta' = {} must be more than 1 + policy.epsilon_high = {}", m_policy.delta,
                        1 + m_policy.epsilon_high));
  }

  void rewards() {
    if (m_deck.rewards.empty())
      m_diagnostics.error({m_loaded.source, 1, 1, 0},
                          "missing [[reward]]: 'objective.kind' = \"grpo\" learns from at least one reward");
    const Entry* entry = find_path(m_loaded.root, {"reward"});
    const auto* elements = entry == nullptr ? nullptr : std::get_if<Array>(&entry->value.data);
    for (std::size_t i = 0; elements != nullptr && i < m_deck.rewards.size() && i < elements->size(); ++i) {
      const RewardTable& reward = m_deck.rewards[i];
      // A kind that there is not has its error already.
      const Value* kind = value_in((*elements)[i], "kind");
      const auto* name = kind == nullptr ? nullptr : std::get_if<std::string>(&kind->data);
      if (name == nullptr || *name != name_of(reward.kind)) continue;
      needed_keys(i, reward, (*elements)[i]);
      keys_of_other_kinds(i, reward, (*elements)[i]);
    }
  }

 private:
  void needed_keys(std::size_t i, const RewardTable& t, const Value& element) {
    const bool no_command = t.command.empty() || t.command.front().empty();
    for (const auto& [kind, key, missing] : {std::tuple{RewardKind::regex, "pattern", t.pattern.empty()},
                                             {RewardKind::length, "target", t.target == 0},
                                             {RewardKind::program, "command", no_command}})
      if (t.kind == kind && missing)
        error_of_reward(element, key,
                        fmt::format("'reward[{}].{}' is required for kind = \"{}\"{}", i, key, name_of(kind),
                                    kind == RewardKind::length ? ", at least 1" : ""));
  }

  // By their values: a resolved deck has the defaults of all keys.
  void keys_of_other_kinds(std::size_t i, const RewardTable& t, const Value& element) {
    using enum RewardKind;
    const RewardTable defaults;
    const std::vector<RewardKind> texts{exact_match, contains, arithmetic},
        letters{exact_match, contains, regex};
    for (const auto& [key, given, kinds] : {std::tuple{"field", t.field != defaults.field, texts},
                                            {"ignore_case", t.ignore_case, letters},
                                            {"pattern", !t.pattern.empty(), {regex}},
                                            {"target", t.target != defaults.target, {length}},
                                            {"unit", t.unit != defaults.unit, {length}},
                                            {"command", !t.command.empty(), {program}},
                                            {"timeout_s", t.timeout_s != defaults.timeout_s, {program}}})
      if (given && std::ranges::count(kinds, t.kind) == 0)
        error_of_reward(element, key,
                        fmt::format("'reward[{}].{}' has no effect with kind = \"{}\"; remove it", i, key,
                                    name_of(t.kind)));
  }

  void error_of_reward(const Value& element, const char* key, std::string text) {
    const Value* value = value_in(element, key);
    m_diagnostics.error(value == nullptr ? element.place : value->place, std::move(text));
  }

  static const Value* value_in(const Value& element, const char* key) {
    const auto* table = std::get_if<Table>(&element.data);
    const Entry* entry = table == nullptr ? nullptr : find(*table, key);
    return entry == nullptr ? nullptr : &entry->value;
  }

  void error(const Path& path, const std::string& text) { m_diagnostics.error(place_of(m_loaded, path), text); }

  const TrainDeck& m_deck;
  const PolicyTable& m_policy;
  const LoadedDeck& m_loaded;
  Diagnostics& m_diagnostics;
};

}  // namespace

void check_groups(const PolicyTable& policy, const std::vector<std::string>& key, std::int64_t sequences,
                  const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (sequences % policy.group_size == 0) return;
  diagnostics.error(
      place_of(loaded, key),
      fmt::format("'{}.{}' = {} must be a multiple of policy.group_size = {}: a step has whole groups", key[0],
                  key[1], sequences, policy.group_size));
}

void check_sample_batch(const PolicyTable& policy, const char* key, std::int64_t sequences,
                        const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (policy.sample_batch == 0 || sequences % policy.sample_batch == 0) return;
  diagnostics.error(
      place_of(loaded, {"policy", "sample_batch"}),
      fmt::format("'policy.sample_batch' = {} must divide {} = {}", policy.sample_batch, key, sequences));
}

void check_sampler(const PolicyTable& policy, const std::optional<AdapterTable>& adapter,
                   const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const auto error = [&](const Path& path, const char* text) {
    diagnostics.error(place_of(loaded, path), text);
  };
  if (adapter && adapter->dropout.value_or(0) > 0)
    error({"adapter", "dropout"},
          "'adapter.dropout' would make the model that learns another one than the model that samples; "
          "remove it");
  if (policy.temperature == 0)
    error({"policy", "temperature"},
          "'policy.temperature' must be more than 0: completions of a prompt would be equal, and nothing "
          "learnt");
  if (policy.top_p == 0) error({"policy", "top_p"}, "'policy.top_p' must be more than 0");
}

void check_policy(const TrainDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  PolicyCheck check(deck, loaded, diagnostics);
  check.length();
  check.sizes();
  check.model();
  check.rewards();
}

}  // namespace kformer::Impl::schema
