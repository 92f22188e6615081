// SPDX-License-Identifier: MIT
#include "kformer/data/rewards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/rewards/last_number.hpp"
#include "data/rewards/line_program.hpp"
#include "data/rewards/program_lines.hpp"
#include "data/rewards/search.hpp"
#include "io/trimmed.hpp"
#include "io/utf8.hpp"
#include "kformer/core/option_checks.hpp"

namespace kformer {

using namespace Impl::data;
using Impl::trimmed;
using nlohmann::json;

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double longest_timeout_s = 1e6;

[[noreturn]] void refuse(const std::string& what) { throw RewardError("kformer::Rewards: " + what); }

/// The expected text: that of a text, or a number as its line spells it.
std::string expected_text(const PromptSample& prompt, const std::string& field) {
  const auto found = prompt.fields.find(field);
  if (found == prompt.fields.end())
    refuse(fmt::format("the prompt {:.80} has no field \"{}\"", prompt.prompt, field));
  const json value = json::parse(found->second, nullptr, false);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return found->second;
  refuse(fmt::format("the field \"{}\" of the prompt {:.80} is {:.80}; expected a text or a number", field,
                     prompt.prompt, found->second));
}

/// One of the rewards.
class Judge {
 public:
  Judge() = default;
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;
  virtual ~Judge() = default;

  virtual double reward(const RewardInput& input) = 0;
  virtual void check(const PromptSample&) const {}
};

/// exact_match and contains.
class TextJudge : public Judge {
 public:
  explicit TextJudge(const RewardOptions& options) : m_options(options) {}

  double reward(const RewardInput& input) override {
    const std::string text = expected_text(input.prompt, m_options.field);
    const std::string_view expected = trimmed(text), found = trimmed(input.completion);
    const bool whole = m_options.kind == RewardKind::exact_match;
    check(input.prompt, expected);
    if (m_options.ignore_case) return Search::text(expected, whole).is_in(found) ? 1 : 0;
    return (whole ? found == expected : found.find(expected) != std::string_view::npos) ? 1 : 0;
  }

  void check(const PromptSample& prompt) const override {
    check(prompt, trimmed(expected_text(prompt, m_options.field)));
  }

 private:
  void check(const PromptSample& prompt, std::string_view expected) const {
    if (expected.empty() && m_options.kind == RewardKind::contains)
      refuse(fmt::format("the field \"{}\" of the prompt {:.80} is blank: every completion would contain it",
                         m_options.field, prompt.prompt));
  }

  RewardOptions m_options;
};

class ArithmeticJudge : public Judge {
 public:
  explicit ArithmeticJudge(std::string field) : m_field(std::move(field)) {}

  double reward(const RewardInput& input) override {
    const Decimal expected = expected_number(input.prompt);
    return last_number(input.completion) == expected ? 1 : 0;
  }

  void check(const PromptSample& prompt) const override { expected_number(prompt); }

 private:
  Decimal expected_number(const PromptSample& prompt) const {
    const std::string text = expected_text(prompt, m_field);
    if (auto number = last_number(text)) return *number;
    refuse(fmt::format(
        "the field \"{}\" of the prompt {:.80} is '{:.80}', which does not end with a decimal number", m_field,
        prompt.prompt, text));
  }

  std::string m_field;
};

class RegexJudge : public Judge {
 public:
  explicit RegexJudge(const RewardOptions& options)
      : m_search(Search::pattern(options.pattern, options.ignore_case)) {}

  double reward(const RewardInput& input) override { return m_search.is_in(input.completion) ? 1 : 0; }

 private:
  Search m_search;
};

class LengthJudge : public Judge {
 public:
  explicit LengthJudge(const RewardOptions& options)
      : m_target(static_cast<double>(options.target)), m_unit(options.unit) {}

  double reward(const RewardInput& input) override {
    const std::int64_t length = m_unit == LengthUnit::tokens ? input.tokens : characters(input.completion);
    return std::max(0.0, 1 - std::abs(static_cast<double>(length) - m_target) / m_target);
  }

 private:
  static std::int64_t characters(std::string_view text) {
    std::int64_t count = 0;
    for (; !text.empty(); ++count) text.remove_prefix(Impl::first_character(text).bytes);
    return count;
  }

  double m_target;
  LengthUnit m_unit;
};

class ProgramJudge : public Judge {
 public:
  explicit ProgramJudge(const RewardOptions& options) : m_program(options.command, options.timeout_s) {}

  double reward(const RewardInput& input) override {
    const std::string answer = m_program.ask(program_question(input));
    const std::optional<double> reward = program_reward(answer);
    if (!reward)
      m_program.fail(
          fmt::format("it answered '{:.80}'; expected {{\"reward\": x}} with a finite number or null",
                      Impl::repair_utf8(answer)));
    return *reward;
  }

 private:
  LineProgram m_program;
};

void check_options(const RewardOptions& options) {
  const auto require = [](bool good, const std::string& expected) {
    if (!good) throw NotSupported(expected);
  };
  require(Impl::is_enumerator(options.kind), Impl::not_an_enumerator("kind", options.kind));
  require(std::isfinite(options.weight), fmt::format("weight must be finite, got {}", options.weight));
  if (options.kind == RewardKind::length) {
    require(options.target >= 1, fmt::format("target must be at least 1, got {}", options.target));
    require(Impl::is_enumerator(options.unit), Impl::not_an_enumerator("unit", options.unit));
  }
  if (options.kind == RewardKind::program) {
    require(!options.command.empty() && !options.command.front().empty(), "there is no command");
    require(std::ranges::none_of(options.command, [](const std::string& s) { return s.find('\0') != s.npos; }),
            "the command has a NUL character");
    require(
        options.timeout_s > 0 && options.timeout_s <= longest_timeout_s,
        fmt::format("timeout_s must be positive and at most {}, got {}", longest_timeout_s, options.timeout_s));
  }
}

std::unique_ptr<Judge> judge_of(const RewardOptions& options) {
  check_options(options);
  switch (options.kind) {
    case RewardKind::exact_match:
    case RewardKind::contains:
      return std::make_unique<TextJudge>(options);
    case RewardKind::arithmetic:
      return std::make_unique<ArithmeticJudge>(options.field);
    case RewardKind::regex:
      return std::make_unique<RegexJudge>(options);
    case RewardKind::length:
      return std::make_unique<LengthJudge>(options);
    case RewardKind::program:
      break;
  }
  return std::make_unique<ProgramJudge>(options);
}

}  // namespace

struct Rewards::Judges {
  std::vector<std::unique_ptr<Judge>> all;
  std::vector<double> weights;
};

Rewards::Rewards(const std::vector<RewardOptions>& options) : m_judges(std::make_unique<Judges>()) {
  if (options.empty()) throw NotSupported("kformer::Rewards: there is no reward");
  for (const RewardOptions& one : options) {
    try {
      m_judges->all.push_back(judge_of(one));
    } catch (const NotSupported& error) {
      throw NotSupported(fmt::format("kformer::Rewards: reward {}: {}", m_judges->all.size(), error.what()));
    }
    m_judges->weights.push_back(one.weight);
  }
}

Rewards::~Rewards() = default;
Rewards::Rewards(Rewards&& other) noexcept = default;
Rewards& Rewards::operator=(Rewards&& other) noexcept = default;

RewardScore Rewards::score(const RewardInput& input) {
  RewardScore score;
  bool judged = false;
  for (std::size_t i = 0; i < m_judges->all.size(); ++i) {
    const double reward = m_judges->all[i]->reward(input);
    score.each.push_back(reward);
    if (std::isnan(reward)) continue;
    judged = true;
    score.total += m_judges->weights[i] * reward;
  }
  if (!judged) score.total = nan;
  return score;
}

void Rewards::check(const PromptSample& prompt) const {
  for (const auto& judge : m_judges->all) judge->check(prompt);
}

}  // namespace kformer
