// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/core/types/names.hpp"
#include "kformer/data/prompt_dataset.hpp"

/// \file
/// Rewards of completions, for `group_advantages` (docs/preferences.md).

namespace kformer {

/// What a completion is rewarded for.
enum class RewardKind {
  exact_match,  ///< 1 if it is the expected text, without white space around either
  contains,     ///< 1 if the expected text, without white space around it, is a part of it
  arithmetic,   ///< 1 if its last number is the last one of the expected text
  regex,        ///< 1 if a pattern is found in it
  length,       ///< max(0, 1 − |n − target|/target), with n tokens or characters
  program       ///< what an external program says
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 6> names_of<RewardKind> = {
    "exact_match", "contains", "arithmetic", "regex", "length", "program"};

/// What the length of a completion is counted in.
enum class LengthUnit {
  tokens,     ///< as the policy wrote them, with the one that ends it
  characters  ///< of Unicode
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<LengthUnit> = {"tokens", "characters"};

/// A reward could not be computed: a prompt lacks what it needs, or an external program failed.
class RewardError : public Error {
 public:
  using Error::Error;
};

/// One reward.
struct RewardOptions {
  RewardKind kind = RewardKind::exact_match;  ///< what is rewarded
  double weight = 1;                          ///< factor in the sum of all rewards; any finite number
  std::string field = "answer";          ///< exact_match, contains, arithmetic: the member of a prompt's line
                                         ///< with the expected text, a text or a number
  bool ignore_case = false;              ///< exact_match, contains, regex: letters are folded as Unicode says
  std::string pattern;                   ///< regex: in the syntax of PCRE2, found anywhere unless anchored
  std::int64_t target = 0;               ///< length: where the reward is 1; at least 1
  LengthUnit unit = LengthUnit::tokens;  ///< length: what is counted
  std::vector<std::string> command;      ///< program: its name, searched in PATH, and its arguments
  double timeout_s = 60;                 ///< program: for one answer, the first included
};

/// A completion to be judged.
struct RewardInput {
  const PromptSample& prompt;   ///< what was asked, with the members of its line
  std::string_view completion;  ///< the text of the completion, without the token that ends it
  std::int64_t tokens = 0;      ///< how many the policy wrote; length only
};

/// The rewards of a completion.
struct RewardScore {
  double total = 0;          ///< Σ weight · reward, without those that are NaN; NaN if all are
  std::vector<double> each;  ///< the rewards without weights; NaN where a program has none
};

/// A sum of rewards. Move only; not safe for threads, which may each have one.
///
/// arithmetic: a number has digits, perhaps a sign, commas between groups of three digits, a fraction behind a point,
/// and an exponent: "-1,234.50" and "-1.2345e3" are one number. A sign is one if no letter, digit or ")" precedes it:
/// "7-5" ends with 5, "= -5" with −5. Numbers are compared as decimals, so none overflows and none is rounded
/// (exponents beyond ±10¹⁵ count as these). A completion without a number has the reward 0.
///
/// regex: a search takes at most 10⁶ steps of backtracking at each place, and 1 s and 1 µs per byte of processor
/// time, or a RewardError says so: no pattern hangs.
///
/// program: it is started once, in the constructor. For each completion it reads from its standard input one line, a
/// JSON object with `prompt` (as in the data), `completion` (a text) and all further members of the prompt's line. It
/// answers on standard output with one line, `{"reward": x}`, where x is a number, or null: the completion cannot be
/// judged (NaN). Its standard error is that of this process. It runs in a process group of its own, ends by itself
/// when its input ends, and is killed with its group if it has not after a second. After an error it is killed, too,
/// and every further call throws.
class Rewards {
 public:
  /// Checks the options, compiles patterns, starts programs.
  /// \param options the rewards, at least one
  /// \throws NotSupported naming the reward and the option that is out of range
  /// \throws RewardError if a program cannot be started
  explicit Rewards(const std::vector<RewardOptions>& options);

  ~Rewards();                                    ///< ends the programs
  Rewards(Rewards&& other) noexcept;             ///< moves the programs
  Rewards& operator=(Rewards&& other) noexcept;  ///< moves the programs

  /// Judges a completion.
  /// \throws RewardError if the prompt lacks a field or a number; if a search takes too long; if a program does not
  ///         answer in time, has ended, or answers with anything but a reward
  RewardScore score(const RewardInput& input);

  /// Checks before a training that a prompt has what the rewards need.
  /// \throws RewardError naming the field
  void check(const PromptSample& prompt) const;

 private:
  struct Judges;
  std::unique_ptr<Judges> m_judges;
};

}  // namespace kformer
