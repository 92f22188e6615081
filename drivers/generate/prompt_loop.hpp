// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "generate/generate_results.hpp"
#include "generate/generation.hpp"

namespace kformer::drivers {

/// The prompts of a deck, as the main loop needs them.
struct PromptLoop {
  const GenerateDeck* deck;  ///< the prompts, and how often each is continued
  TextGenerator* generator;  ///< continues them
  GenerateResults* results;  ///< where everything is written down
  /// Why the run should stop, if it should; called between steps.
  std::function<std::optional<std::string>()> stop;
  /// What limits steps that move so many bytes, at this moment.
  std::function<measure::CaseLimits(double bytes)> limits;
  bool together = false;    ///< whether other ranks continue them, too, which wait for one that fails alone
  std::FILE* log = stderr;  ///< where figures and faults go
  std::function<void()> finish = {};  ///< called before the file is closed
};

/// Continues every prompt until the last, a request to stop, or memory that runs out, compares the results with
/// what the deck expects, and closes the file.
///
/// Standard output gets the text alone: prompt and continuation as they come, of a chat the answer. With more
/// than one sequence a line before each says which it is. Figures and faults go to the log. Warm-ups and
/// repeats print no text.
/// \returns the exit code
int run_prompts(const PromptLoop& loop, ResultFile& file);

}  // namespace kformer::drivers
