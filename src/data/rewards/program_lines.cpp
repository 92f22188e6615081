// SPDX-License-Identifier: MIT
#include "data/rewards/program_lines.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "io/trimmed.hpp"
#include "io/utf8.hpp"

namespace kformer::Impl::data {
namespace {

using nlohmann::json;

/// A member of a prompt in one line. Numbers keep their spelling: a double may have fewer digits.
std::string in_one_line(const std::string& name, const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  if (value.is_discarded())
    throw RewardError(
        fmt::format("kformer::Rewards: the field \"{}\" of a prompt is {:.80}, which is not JSON", name, text));
  if (!value.is_number()) return value.dump();
  return std::string(trimmed(text));
}

}  // namespace

std::string program_question(const RewardInput& input) {
  std::map<std::string, std::string> members;
  for (const auto& [name, value] : input.prompt.fields) members[name] = in_one_line(name, value);
  members["prompt"] = in_one_line("prompt", input.prompt.prompt);
  members["completion"] = json(repair_utf8(input.completion)).dump();
  std::string line;
  for (const auto& [name, value] : members)
    line += (line.empty() ? "{" : ",") + json(name).dump() + ':' + value;
  return line + '}';
}

std::optional<double> program_reward(const std::string& answer) {
  const json value = json::parse(answer, nullptr, false);
  if (!value.is_object() || !value.contains("reward")) return {};
  const json& reward = value.at("reward");
  if (reward.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!reward.is_number() || !std::isfinite(reward.get<double>())) return {};
  return reward.get<double>();
}

}  // namespace kformer::Impl::data
