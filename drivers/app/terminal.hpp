// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

/// \file
/// What a program shows on a terminal, and not in logs: colours, and progress on a line that is written over.

namespace kformer::drivers {

/// Whether somebody reads a stream on a terminal.
bool is_terminal(std::FILE* stream);

/// Whether a stream is a terminal that shows colours: neither NO_COLOR nor TERM=dumb forbids them.
bool shows_colour(std::FILE* stream);

/// The text with "\x1b" in the place of a control character: names in files of others may hold orders to a terminal. Ends of lines
/// and tabs stay.
std::string printable(std::string_view text);

/// How a text is coloured.
enum class Tone { plain, good, doubtful, bad };

/// The text in its colour.
std::string coloured(const std::string& text, Tone tone);

/// A duration in words: "40 s", "3 min", "2 h 10 min".
std::string rough_duration(double seconds);

/// The line of progress on standard error; nothing where that is no terminal.
class ProgressLine {
 public:
  /// \param steps there are in all
  explicit ProgressLine(std::size_t steps);
  /// Shows that a step begins: "[3/48] name, about 2 min left". The time is that of earlier steps.
  /// \param index of the step, from 0
  void begin(std::size_t index, const std::string& name);
  /// Removes the line, so that something else can be printed.
  void clear() const;

 private:
  std::size_t m_steps;
  bool m_shown;
  std::chrono::steady_clock::time_point m_start;
};

/// The line of `ProgressLine::begin`.
/// \param elapsed seconds since the first step began
std::string progress_text(std::size_t index, std::size_t steps, const std::string& name, double elapsed);

}  // namespace kformer::drivers
