// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "common/text_engine.hpp"
#include "generate/generation.hpp"

/// \file
/// What a deck asks for, as an engine wants it.

namespace kformer::drivers {

/// The engine of a deck.
/// \param longest_prompt tokens of the longest prompt
/// \param end_of_text    tokens that end a text
EngineTask engine_task(const GenerateDeck& deck, const Checkpoint& checkpoint, std::int64_t longest_prompt,
                       const std::vector<std::int32_t>& end_of_text);

}  // namespace kformer::drivers
