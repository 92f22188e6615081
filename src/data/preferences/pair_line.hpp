// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "data/lines/line_members.hpp"

namespace kformer::Impl::data {

/// What a line of a set of pairs must be, for error texts.
extern const char* const expected_pair;

/// A pair, as texts or as messages. None of the lists is empty, and completions begin with an answer.
template <class T>
struct Pair {
  T prompt, chosen, rejected;
};
using TextPair = Pair<std::string>;
using MessagePair = Pair<Messages>;

/// The pair in a line. Of two equal lists the last message is the completion, of two equal texts without a prompt the
/// last character.
/// \throws FileError
std::variant<TextPair, MessagePair> pair_of(const JsonLine& line, std::string_view text);

}  // namespace kformer::Impl::data
