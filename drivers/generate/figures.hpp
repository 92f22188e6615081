// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "generate/generate_results.hpp"

namespace kformer::drivers {

/// What a generation took, as lines of text.
/// \param share as `GenerateResults::share_of_limit`
std::string figures_of(const GenerationLabel& label, const Generation& generation, double share);

/// What a deck asks for, one line per thing, for --dry-run.
std::string plan_of(const GenerateDeck& deck);

}  // namespace kformer::drivers
