// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/steps/pattern.hpp"

/// \file
/// The steps before the words of a text are merged; each step works on the words of the previous one.

namespace kformer::Impl::tokenizers {

/// A step: adds the words that `word` becomes.
/// \param first whether `word` is the beginning of the text
using SplitStep = std::function<void(std::string_view word, bool first, std::vector<std::string>& words)>;

/// What happens to the matches of a pattern; named as in tokenizer.json.
enum class MatchBehaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Finds matches, and the text between them.
using Finder = std::function<std::vector<Stretch>(std::string_view)>;

/// Finds a text.
Finder find_literal(std::string literal);
/// Finds the matches of a pattern.
Finder find_pattern(Pattern pattern);

/// Splits at matches; `invert`: at the text between them.
SplitStep split_at(Finder finder, MatchBehaviour behaviour, bool invert);
/// Puts a space before a word that has none there.
SplitStep prepend_space();
/// Turns bytes into the letters of byte-level vocabularies.
SplitStep to_byte_letters();

/// When a space is put before a word.
enum class PrependSpace { always, first, never };
/// Turns spaces into `letter`; `split`: and splits before each.
SplitStep replace_spaces(std::string letter, PrependSpace prepend, bool split);

/// All steps, one after another, on `text`.
std::vector<std::string> split_text(const std::vector<SplitStep>& steps, std::string_view text, bool first);

/// The pattern of GPT-2, which byte-level tokenizers use where none is given.
extern const std::string_view gpt2_pattern;

}  // namespace kformer::Impl::tokenizers
