// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "generate/generate_results.hpp"

namespace kformer::drivers {

/// Time and memory of a generation, as lines of text.
std::string figures_of(const GenerationLabel& label, const Generation& generation);

/// The settings of a deck, one per line, for --dry-run.
std::string plan_of(const GenerateDeck& deck);

}  // namespace kformer::drivers
