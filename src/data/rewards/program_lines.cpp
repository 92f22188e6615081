// SPDX-License-Identifier: MIT
#include "data/rewards/program_lines.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/utf8.hpp"

namespace kformer::Impl::data {
namespace {

using nlohmann::json;

json parsed(const std::string& name, const std::string& text) {
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded())
    throw RewardError(
        fmt::format("kformer::Rewards: the field \"{}\" of a prompt is {:.80}, which is not JSON", name, text));
  return value;
}

}  // namespace

std::string program_question(const RewardInput& input) {
  json line = json::object();
  for (const auto& [name, value] : input.prompt.fields) line[name] = parsed(name, value);
  line["prompt"] = parsed("prompt", input.prompt.prompt);
  line["completion"] = repair_utf8(input.completion);
  return line.dump();
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
