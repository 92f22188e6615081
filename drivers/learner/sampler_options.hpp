// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "decks/train/policy_tables.hpp"
#include "kformer/model/generator.hpp"
#include "kformer/model/weight_formats.hpp"

/// \file
/// How the model of a training samples, for the training itself and for its forecast.

namespace kformer::drivers {

/// The options of a sampler that determine its memory.
/// \param sequences      completions of a step
/// \param longest_prompt tokens of the longest prompt
GeneratorOptions sampler_options(const PolicyTable& policy, std::int64_t sequences,
                                 std::int64_t longest_prompt);

/// How many matrices have which format: "14 NF4".
std::string format_text(const WeightFormats& formats);

}  // namespace kformer::drivers
