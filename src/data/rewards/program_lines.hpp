// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "kformer/data/rewards.hpp"

/// \file
/// What a program that gives rewards is asked and answers, without ends of lines.

namespace kformer::Impl::data {

/// The JSON object of a completion.
/// \throws RewardError if a field of the prompt is not JSON
std::string program_question(const RewardInput& input);

/// The reward in `{"reward": x}`, NaN for null; nothing if the text is anything else.
std::optional<double> program_reward(const std::string& answer);

}  // namespace kformer::Impl::data
