// SPDX-License-Identifier: MIT
#include <cstddef>
#include <string>
#include <utility>

#include "text/base/file.hpp"
#include "text/hf/parts.hpp"
#include "text/steps/spelled_spaces.hpp"

namespace kformer::Impl::tokenizers {
namespace {

std::string type_of(const Node& component) { return component.at("type").text(); }

[[noreturn]] void refuse_type(const Node& component, const std::string& known) {
  component.unsupported("it is '" + type_of(component) + "'; supported: " + known);
}

/// Steps of a normalizer or a pre-tokenizer. Each passes over the whole text; published tokenizers have a dozen.
constexpr std::size_t most_steps = 100;

void require_few(const Node& component, std::size_t steps) {
  if (steps > most_steps)
    component.unsupported("it has " + std::to_string(steps) + " steps, more than " +
                          std::to_string(most_steps));
}

/// `f(component)`, or of each of a "Sequence" of them.
template <class F>
void for_each_component(const Node& component, const std::string& members, F f) {
  if (type_of(component) != "Sequence") {
    f(component);
    return;
  }
  for (const Node& member : component.at(members).elements()) for_each_component(member, members, f);
}

MatchBehaviour read_behaviour(const Node& split) {
  constexpr std::pair<const char*, MatchBehaviour> names[] = {
      {"Removed", MatchBehaviour::removed},
      {"Isolated", MatchBehaviour::isolated},
      {"MergedWithPrevious", MatchBehaviour::merged_with_previous},
      {"MergedWithNext", MatchBehaviour::merged_with_next},
      {"Contiguous", MatchBehaviour::contiguous}};
  const std::string name = split.at("behavior").text();
  for (const auto& [known, behaviour] : names)
    if (name == known) return behaviour;
  refuse(split.file(), split.name() + ".behavior is " + in_quotes(name) +
                           ", expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

PrependSpace read_prepend(const Node& metaspace) {
  const auto scheme = metaspace.find("prepend_scheme");
  if (!scheme)
    return metaspace.boolean_of("add_prefix_space", true) ? PrependSpace::always : PrependSpace::never;
  const std::string name = scheme->text();
  if (name == "always") return PrependSpace::always;
  if (name == "first") return PrependSpace::first;
  if (name == "never") return PrependSpace::never;
  refuse(metaspace.file(), scheme->name() + " is " + in_quotes(name) + ", expected always, first or never");
}

void read_split_step(const Node& step, Pipeline& parts) {
  const std::string type = type_of(step);
  auto& steps = parts.split_steps;
  if (type == "Split") {
    steps.push_back(
        split_at(read_pattern(step.at("pattern")), read_behaviour(step), step.boolean_of("invert", false)));
  } else if (type == "Digits") {
    const bool each = step.boolean_of("individual_digits", false);
    steps.push_back(split_at(find_pattern(Pattern(R"(\p{N})", step.file())),
                             each ? MatchBehaviour::isolated : MatchBehaviour::contiguous, false));
  } else if (type == "ByteLevel") {
    // The space comes before the split, which may move it to the next word.
    if (step.boolean_of("add_prefix_space", true)) steps.push_back(prepend_space());
    if (step.boolean_of("use_regex", true))
      steps.push_back(
          split_at(find_pattern(Pattern(gpt2_pattern, step.file())), MatchBehaviour::isolated, false));
    steps.push_back(to_byte_letters());
  } else if (type == "Metaspace") {
    steps.push_back(replace_spaces(step.text_of("replacement", "\xE2\x96\x81"), read_prepend(step),
                                   step.boolean_of("split", true)));
  } else {
    refuse_type(step, "Split, Digits, ByteLevel, Metaspace and Sequence");
  }
}

void read_normal_step(const Node& step, Pipeline& parts) {
  const std::string type = type_of(step);
  auto& steps = parts.normal_steps;
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD")
    steps.push_back(unicode_form(type, step.file()));
  else if (type == "Prepend")
    steps.push_back(prepend_text(step.at("prepend").text()));
  else if (type == "Replace")
    steps.push_back(replace_text(read_pattern(step.at("pattern")), step.at("content").text()));
  else
    refuse_type(step, "NFC, NFD, NFKC, NFKD, Prepend, Replace and Sequence");
}

bool is_space_pattern(const Node& decoder) {
  return decoder.at("pattern").text_of("String", "") == "\xE2\x96\x81" && decoder.at("content").text() == " ";
}

/// What the steps of a decoder have done so far.
struct Decoding {
  bool spelled = false;  ///< turned spellings into text
  bool fused = false;    ///< joined the tokens
};

void read_decoding_step(const Node& step, Decoding& done, Pipeline& parts) {
  const std::string type = type_of(step);
  const auto spell = [&](Spelling spelling) {
    if (done.spelled) step.unsupported("a step before it spells the tokens already");
    done.spelled = true;
    parts.spelling = spelling;
  };
  const bool of_tokens = type == "ByteLevel" || type == "Metaspace" || type == "ByteFallback";
  if (of_tokens && done.fused) step.unsupported("it is behind 'Fuse', where there are no tokens any more");
  if (type == "ByteLevel") {
    spell(Spelling::byte_letters);
  } else if (type == "Metaspace" && step.text_of("replacement", std::string(spelled_space)) == spelled_space) {
    spell(Spelling::spaces);
    if (read_prepend(step) != PrependSpace::never) parts.dropped_spaces = DroppedSpaces::of_first_token;
  } else if (type == "Replace" && is_space_pattern(step)) {
    spell(Spelling::spaces);
  } else if (type == "Strip" && done.fused && step.at("content").text() == " " &&
             step.at("start").integer() <= 1 && step.at("stop").integer() == 0) {
    if (step.at("start").integer() == 1) parts.dropped_spaces = DroppedSpaces::first;
  } else if (type == "ByteFallback") {
    parts.names_bytes = true;
  } else if (type == "Fuse") {
    done.fused = true;
  } else {
    refuse_type(
        step,
        "ByteLevel, ByteFallback, Fuse, Metaspace with ▁, Replace of ▁ by a space, Strip of a first space "
        "behind Fuse");
  }
}

}  // namespace

Finder read_pattern(const Node& pattern) {
  if (const auto literal = pattern.find("String")) return find_literal(literal->text());
  return find_pattern(Pattern(pattern.at("Regex").text(), pattern.file()));
}

void read_normalizer(const Node& root, Pipeline& parts) {
  if (const auto normalizer = root.find("normalizer")) {
    for_each_component(*normalizer, "normalizers", [&](const Node& step) { read_normal_step(step, parts); });
    require_few(*normalizer, parts.normal_steps.size());
  }
}

void read_pre_tokenizer(const Node& root, Pipeline& parts) {
  if (const auto pre = root.find("pre_tokenizer")) {
    for_each_component(*pre, "pretokenizers", [&](const Node& step) { read_split_step(step, parts); });
    require_few(*pre, parts.split_steps.size());
  }
}

void read_decoder(const Node& root, Pipeline& parts) {
  const auto decoder = root.find("decoder");
  if (!decoder) return;
  Decoding done;
  parts.names_bytes = false;
  for_each_component(*decoder, "decoders", [&](const Node& step) { read_decoding_step(step, done, parts); });
  if (!done.spelled) decoder->unsupported("it has none of ByteLevel, Metaspace and Replace");
  if (parts.spelling == Spelling::byte_letters &&
      (parts.names_bytes || parts.dropped_spaces != DroppedSpaces::none))
    decoder->unsupported("it has more steps than ByteLevel, which leaves nothing to them");
}

}  // namespace kformer::Impl::tokenizers
