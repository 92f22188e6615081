// SPDX-License-Identifier: MIT
#include "text/steps/splitting.hpp"

#include <algorithm>
#include <utility>

#include "text/base/byte_names.hpp"

namespace kformer::Impl::tokenizers {

const std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

/// Appends `next` to the stretch before it if `join`, else to the list.
void append(std::vector<Stretch>& all, const Stretch& next, bool join) {
  if (join && !all.empty())
    all.back().end = next.end;
  else
    all.push_back(next);
}

std::vector<Stretch> merge_with_previous(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  bool after_match = false;
  for (const Stretch& next : stretches) {
    append(merged, next, next.match && !after_match);
    after_match = next.match;
  }
  return merged;
}

std::vector<Stretch> merge_with_next(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  bool before_match = false;
  for (auto next = stretches.rbegin(); next != stretches.rend(); ++next) {
    if (next->match && !before_match && !merged.empty())
      merged.back().begin = next->begin;
    else
      merged.push_back(*next);
    before_match = next->match;
  }
  std::reverse(merged.begin(), merged.end());
  return merged;
}

std::vector<Stretch> merge_alike(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  bool before = false;
  for (const Stretch& next : stretches) {
    append(merged, next, next.match == before);
    before = next.match;
  }
  return merged;
}

std::vector<Stretch> behave(std::vector<Stretch> stretches, MatchBehaviour behaviour) {
  switch (behaviour) {
    case MatchBehaviour::merged_with_previous:
      return merge_with_previous(stretches);
    case MatchBehaviour::merged_with_next:
      return merge_with_next(stretches);
    case MatchBehaviour::contiguous:
      return merge_alike(stretches);
    case MatchBehaviour::removed:
      std::erase_if(stretches, [](const Stretch& s) { return s.match; });
      return stretches;
    case MatchBehaviour::isolated:
      break;
  }
  return stretches;
}

}  // namespace

Finder find_literal(std::string literal) {
  return [literal = std::move(literal)](std::string_view text) {
    std::vector<Stretch> stretches;
    std::size_t end = 0;
    for (std::size_t at = text.find(literal); at != std::string_view::npos && !literal.empty();
         at = text.find(literal, end)) {
      if (at > end) stretches.push_back({end, at, false});
      end = at + literal.size();
      stretches.push_back({at, end, true});
    }
    if (end < text.size()) stretches.push_back({end, text.size(), false});
    return stretches;
  };
}

Finder find_pattern(Pattern pattern) {
  return [pattern = std::move(pattern)](std::string_view text) { return pattern.find_all(text); };
}

SplitStep split_at(Finder finder, MatchBehaviour behaviour, bool invert) {
  return [=](std::string_view word, bool, std::vector<std::string>& words) {
    std::vector<Stretch> stretches = finder(word);
    if (invert)
      for (Stretch& s : stretches) s.match = !s.match;
    for (const Stretch& s : behave(std::move(stretches), behaviour))
      if (s.end > s.begin) words.emplace_back(word.substr(s.begin, s.end - s.begin));
  };
}

SplitStep prepend_space() {
  return [](std::string_view word, bool, std::vector<std::string>& words) {
    words.push_back(word.starts_with(' ') ? std::string(word) : " " + std::string(word));
  };
}

SplitStep to_byte_letters() {
  return [](std::string_view word, bool, std::vector<std::string>& words) {
    words.push_back(letters_of_bytes(word));
  };
}

SplitStep replace_spaces(std::string letter, PrependSpace prepend, bool split) {
  return [=](std::string_view word, bool first, std::vector<std::string>& words) {
    std::string text;
    for (const char c : word) c == ' ' ? text += letter : text += c;
    const bool wanted = prepend == PrependSpace::always || (prepend == PrependSpace::first && first);
    if (wanted && !text.starts_with(letter)) text.insert(0, letter);
    if (!split) {
      words.push_back(std::move(text));
      return;
    }
    for (const Stretch& s : merge_with_next(find_literal(letter)(text)))
      words.push_back(text.substr(s.begin, s.end - s.begin));
  };
}

std::vector<std::string> split_text(const std::vector<SplitStep>& steps, std::string_view text, bool first) {
  std::vector<std::string> words{std::string(text)};
  for (const SplitStep& step : steps) {
    std::vector<std::string> next;
    for (std::size_t i = 0; i < words.size(); ++i) step(words[i], first && i == 0, next);
    words = std::move(next);
  }
  return words;
}

}  // namespace kformer::Impl::tokenizers
