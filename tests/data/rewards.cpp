// SPDX-License-Identifier: MIT
// Rewards by name, and the errors of their options and fields.
#include "kformer/data/rewards.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <ctime>
#include <limits>

#include "data/rewards/last_number.hpp"
#include "data/rewards/search.hpp"
#include "error_text.hpp"

namespace kformer::Testing {
namespace {

using Impl::data::last_number;
using Impl::data::Search;

PromptSample asked(const std::string& answer_in_json) {
  return {{1}, "\"2+2=\"", {{"answer", answer_in_json}}};
}

double reward_of(const RewardOptions& options, const std::string& answer_in_json, const std::string& completion,
                 std::int64_t tokens = 0) {
  const PromptSample prompt = asked(answer_in_json);
  return Rewards({options}).score({prompt, completion, tokens}).total;
}

std::string refused(const RewardOptions& options) {
  return error_text<NotSupported>([&] { Rewards({{.kind = RewardKind::exact_match}, options}); });
}

std::string reward_error(const RewardOptions& options, const PromptSample& prompt,
                         const std::string& completion = "x") {
  const std::string text = error_text<RewardError>([&] { Rewards({options}).score({prompt, completion}); });
  // Known before a training, unless it is the fault of the completion.
  BOOST_TEST(error_text<RewardError>([&] { Rewards({options}).check(prompt); }) == text);
  return text;
}

/// The number as ±digits·10^exponent.
std::string number_in(std::string_view text) {
  const auto number = last_number(text);
  if (!number) return "none";
  return (number->negative ? "-" : "") + number->digits + "e" + std::to_string(number->exponent);
}

double processor_time() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

BOOST_AUTO_TEST_SUITE(rewards)

BOOST_AUTO_TEST_CASE(exact_match) {
  const RewardOptions options{.kind = RewardKind::exact_match};
  BOOST_TEST(reward_of(options, R"("Paris")", " Paris\n") == 1);
  BOOST_TEST(reward_of(options, R"("\t Paris ")", "Paris") == 1);
  BOOST_TEST(reward_of(options, R"("Paris")", "paris") == 0);
  BOOST_TEST(reward_of(options, R"("Paris")", "Paris.") == 0);
  BOOST_TEST(reward_of(options, R"("a b")", "ab") == 0);
  BOOST_TEST(reward_of(options, "42", "42") == 1);
  BOOST_TEST(reward_of(options, "1.50", "1.50") == 1);
  BOOST_TEST(reward_of(options, R"("")", " ") == 1);
  BOOST_TEST(reward_of(options, R"("")", "x") == 0);
}

BOOST_AUTO_TEST_CASE(letters_of_any_case) {
  const RewardOptions exact{.kind = RewardKind::exact_match, .ignore_case = true},
      part{.kind = RewardKind::contains, .ignore_case = true};
  BOOST_TEST(reward_of(exact, R"("Paris")", "pARIS ") == 1);
  BOOST_TEST(reward_of(exact, R"("\u00c9T\u00c9")", "\xC3\xA9t\xC3\xA9") == 1);
  BOOST_TEST(reward_of(exact, R"("Paris")", "Paris, Paris") == 0);
  BOOST_TEST(reward_of(exact, R"("Paris")", "to Paris") == 0);
  // A search looks at a part of the text after another; none of them begins the text but the first.
  for (std::size_t before = 1; before <= 40; ++before)
    BOOST_TEST(reward_of(exact, R"("Paris")", std::string(before, ':') + "Paris") == 0);
  BOOST_TEST(reward_of(exact, R"("Paris")", "\xFFParis") == 0);
  BOOST_TEST(reward_of(exact, R"("Paris")", "Paris\xFF") == 0);
  BOOST_TEST(reward_of(exact, R"("a")", "a\n\nb") == 0);
  BOOST_TEST(reward_of(exact, R"("")", "") == 1);
  BOOST_TEST(reward_of(exact, "\"(.*)\"", "abc") == 0);  // it is no pattern
  BOOST_TEST(reward_of(part, "\"(.*)\"", "x(.*)x") == 1);
  BOOST_TEST(reward_of(part, R"("paris")", "In PARIS.") == 1);
  BOOST_TEST(reward_of(part, R"("paris")", std::string(100, 'x') + "PARIS") == 1);
  BOOST_TEST(reward_of(part, R"("paris")", "In \xFFPARI") == 0);
  BOOST_TEST(reward_of(part, R"("paris")", "\xFF paris") == 1);
}

BOOST_AUTO_TEST_CASE(contains) {
  const RewardOptions options{.kind = RewardKind::contains};
  BOOST_TEST(reward_of(options, R"(" Paris ")", "It is Paris.") == 1);
  BOOST_TEST(reward_of(options, R"("Paris")", "It is PARIS.") == 0);
  BOOST_TEST(reward_of(options, "4", "It is 42.") == 1);
  BOOST_TEST(reward_error(options, asked(R"(" \n")")) ==
             "kformer::Rewards: the field \"answer\" of the prompt \"2+2=\" is blank: every completion would "
             "contain it");
}

BOOST_AUTO_TEST_CASE(numbers_in_texts) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"42", "42e0"},
      {"The answer is 42.", "42e0"},
      {"x = 3.50 of 7", "7e0"},
      {"3.50", "35e-1"},
      {".5", "5e-1"},
      {"0.050", "5e-2"},
      {"-17", "-17e0"},
      {"\xE2\x88\x92"
       "17",
       "-17e0"},
      {"= -5", "-5e0"},
      {"(-5)", "-5e0"},
      {"+5", "5e0"},
      {"7-5", "5e0"},
      {"x-5", "5e0"},
      {"(1+2)-5", "5e0"},
      {"7 -5", "-5e0"},
      {"7 - 5", "5e0"},
      {"7\xE2\x88\x92"
       "5",
       "5e0"},
      {"-.5", "-5e-1"},
      {"1,234,567", "1234567e0"},
      {"-1,234.50", "-12345e-1"},
      {"1,2,3", "3e0"},
      {"12,34", "34e0"},
      {"1,2345", "2345e0"},
      {"1234,567", "567e0"},
      {"1,234,56", "56e0"},
      {"$1,000", "1e3"},
      {"100%", "1e2"},
      {"007", "7e0"},
      {"0", "e0"},
      {"-0.00", "e0"},
      {"0e99", "e0"},
      {"1.2.3", "3e0"},
      {"1e5", "1e5"},
      {"1.5E-3", "15e-4"},
      {"2e+2", "2e2"},
      {"2e", "2e0"},
      {"2e-", "2e0"},
      {"2em", "2e0"},
      {"2e3rd", "3e0"},
      {"1/2", "none"},
      {"-1 / 2.5", "none"},
      {"(x + 1)/2", "none"},
      {"1\u20442", "none"},
      {"\\frac{1}{2}", "none"},
      {"\\frac{1}{2} = 0.5", "5e-1"},
      {"60 km/2 h", "2e0"},
      {"and/2", "2e0"},
      {"/2", "2e0"},
      {"\\boxed{42}", "42e0"},
      {"#### 72", "72e0"},
      {"1e99999999999999999999", "1e1000000000000000"},
      {"10e99999999999999999999", "1e1000000000000000"},
      {"0.5e-99999999999999999999", "5e-1000000000000000"},
      {"1e-99999999999999999999", "1e-1000000000000000"},
      {"none at all", "none"},
      {"", "none"},
      {"-", "none"},
      {"...", "none"},
  };
  for (const auto& [text, expected] : cases)
    BOOST_TEST(number_in(text) == expected, text << ": " << number_in(text));
  // Beyond every type of numbers.
  const std::string nines(5000, '9');
  BOOST_TEST(number_in("it is -" + nines + " or so") == "-" + nines + "e0");
  BOOST_TEST(number_in("1" + std::string(5000, '0')) == "1e5000");
}

BOOST_AUTO_TEST_CASE(arithmetic) {
  const RewardOptions options{.kind = RewardKind::arithmetic};
  BOOST_TEST(reward_of(options, "1234.5", "So it is 1,234.50.") == 1);
  BOOST_TEST(reward_of(options, R"("1,234.5")", "1.2345e3") == 1);
  BOOST_TEST(reward_of(options, R"("6 * 7 = 42\n#### 42")", "First 41, then 42") == 1);
  BOOST_TEST(reward_of(options, "42", "42, not 41") == 0);
  BOOST_TEST(reward_of(options, "-42", "42") == 0);
  BOOST_TEST(reward_of(options, "0", "-0.0") == 1);
  BOOST_TEST(reward_of(options, "0", "no number") == 0);
  // Doubles would take these for equal.
  BOOST_TEST(reward_of(options, R"("9007199254740993")", "9007199254740992") == 0);
  BOOST_TEST(reward_of(options, R"("1e400")", "1e401") == 0);
  BOOST_TEST(reward_of(options, R"("0.1")", "0.10000000000000000001") == 0);
  BOOST_TEST(reward_error(options, asked(R"("none")")) ==
             "kformer::Rewards: the field \"answer\" of the prompt \"2+2=\" is 'none', which does not end with "
             "a decimal "
             "number");
  // Of a fraction, the lower number is not the value.
  BOOST_TEST(reward_of(options, "2", "It is 3/2.") == 0);
  BOOST_TEST(reward_of(options, "2", "4/2 = 2") == 1);
  BOOST_TEST(reward_error(options, asked(R"("1/2")")).ends_with("which does not end with a decimal number"));
}

BOOST_AUTO_TEST_CASE(regex) {
  const auto found = [](const std::string& pattern, const std::string& completion, bool ignore_case = false) {
    return reward_of({.kind = RewardKind::regex, .ignore_case = ignore_case, .pattern = pattern}, "0",
                     completion);
  };
  BOOST_TEST(found("^<think>.*</think>", "<think>a</think> b") == 1);
  BOOST_TEST(found("^<think>.*</think>", " <think>a</think> b") == 0);
  BOOST_TEST(found("^<think>.*</think>", "<think>a\n</think>") == 0);
  BOOST_TEST(found("(?s)^<think>.*</think>$", "<think>" + std::string(50000, '\n') + "</think>") == 1);
  BOOST_TEST(found(R"(\bab\b)", "x ab.") == 1);
  BOOST_TEST(found(R"(\bab\b)", "xab.") == 0);
  BOOST_TEST(found("ab", std::string(1000, 'a') + "b") == 1);
  BOOST_TEST(found("AB", "xab") == 0);
  BOOST_TEST(found("AB", "xab", true) == 1);
  BOOST_TEST(found("^.$", "\xC3\xA9") == 1);
  BOOST_TEST(found(R"(^\w$)", "\xC3\xA9") == 1);
  BOOST_TEST(found("b",
                   "\xFF\xFE"
                   "b") == 1);
  BOOST_TEST(found("", "") == 1);
  BOOST_TEST(Search::pattern("^$", false).is_in({}));
  BOOST_TEST(found("x$", std::string("\0x", 2)) == 1);
  // A place in the middle of a character is none.
  for (std::size_t before = 10; before < 40; ++before)
    BOOST_TEST(found("\xC3\xA9z", std::string(before, 'a') + "\xC3\xA9z") == 1);
}

// A pattern or a completion that was made for it cannot hang a training.
BOOST_AUTO_TEST_CASE(a_hostile_pattern_does_not_hang) {
  const double begin = processor_time();
  const auto search = [](const std::string& pattern, const std::string& text) {
    return error_text<RewardError>([&] { Search::pattern(pattern, false).is_in(text); });
  };
  const std::string as(40, 'a');
  BOOST_TEST(search("^(a+)+$", as + "!") ==
             "kformer::Rewards: the search for '^(a+)+$' in a completion of 41 bytes was aborted: match limit "
             "exceeded; "
             "write a pattern that backtracks less");
  // Each place takes long, and none too long.
  BOOST_TEST(
      search("a[^b]*[bc]", std::string(400000, 'a')) ==
      "kformer::Rewards: the search for 'a[^b]*[bc]' in a completion of 400000 bytes was aborted: it takes too "
      "long; write a pattern that backtracks less");
  BOOST_TEST(processor_time() - begin < 20);
}

BOOST_AUTO_TEST_CASE(length) {
  const RewardOptions tokens{.kind = RewardKind::length, .target = 10},
      characters{.kind = RewardKind::length, .target = 4, .unit = LengthUnit::characters};
  const std::pair<int, double> cases[] = {{10, 1}, {5, 0.5}, {15, 0.5}, {0, 0}, {20, 0}, {1000, 0}, {9, 0.9}};
  for (const auto& [count, reward] : cases)
    BOOST_TEST(reward_of(tokens, "0", "x", count) == reward, boost::test_tools::tolerance(1e-15));
  BOOST_TEST(reward_of(characters, "0", "abcd", 99) == 1);
  BOOST_TEST(reward_of(characters, "0", "\xC3\xA9\xE2\x82\xAC", 99) == 0.5);
  BOOST_TEST(reward_of(characters, "0",
                       "\xFF"
                       "a") == 0.5);
  BOOST_TEST(reward_of(characters, "0", "") == 0);
}

BOOST_AUTO_TEST_CASE(weights) {
  const PromptSample prompt = asked("4");
  Rewards rewards({{.kind = RewardKind::arithmetic, .weight = 2},
                   {.kind = RewardKind::length, .weight = -0.5, .target = 2},
                   {.kind = RewardKind::contains, .weight = 0}});
  const RewardScore score = rewards.score({prompt, "4", 1});
  BOOST_TEST(score.total == 1.75);
  BOOST_TEST(score.each == (std::vector<double>{1, 0.5, 1}), boost::test_tools::per_element());
  Rewards moved = std::move(rewards);
  BOOST_TEST(moved.score({prompt, "5", 2}).total == -0.5);
}

BOOST_AUTO_TEST_CASE(fields_that_are_missing) {
  const std::string begin = "kformer::Rewards: the ";
  for (const RewardKind kind : {RewardKind::exact_match, RewardKind::contains, RewardKind::arithmetic}) {
    const RewardOptions options{.kind = kind};
    BOOST_TEST(reward_error(options, {{1}, R"("2+2=")", {{"solution", "4"}}}) ==
               begin + "prompt \"2+2=\" has no field \"answer\"");
    for (const std::string value : {"null", "[4]", R"({"x":4})", "true"})
      BOOST_TEST(reward_error(options, asked(value)) == begin + "field \"answer\" of the prompt \"2+2=\" is " +
                                                            value + "; expected a text or a number");
  }
  PromptSample other = asked("5");
  other.fields["solution"] = "\"4\"";
  Rewards rewards({{.kind = RewardKind::exact_match, .field = "solution"}});
  rewards.check(other);
  BOOST_TEST(rewards.score({other, "4"}).total == 1);
  // These need no field.
  Rewards({{.kind = RewardKind::regex, .pattern = "a"}, {.kind = RewardKind::length, .target = 1}})
      .check({{1}, "\"\"", {}});
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  const std::string begin = "kformer::Rewards: reward 1: ";
  BOOST_TEST(refused({.kind = static_cast<RewardKind>(6)}) ==
             begin +
                 "kind has the value 6, which its type does not name; choose one of: exact_match, contains, "
                 "arithmetic, regex, length, program");
  BOOST_TEST(refused({.weight = std::numeric_limits<double>::infinity()}) ==
             begin + "weight must be finite, got inf");
  BOOST_TEST(refused({.kind = RewardKind::length}) == begin + "target must be at least 1, got 0");
  BOOST_TEST(refused({.kind = RewardKind::length, .target = 1, .unit = static_cast<LengthUnit>(2)}) ==
             begin + "unit has the value 2, which its type does not name; choose one of: tokens, characters");
  BOOST_TEST(refused({.kind = RewardKind::regex, .pattern = "a(b"}) ==
             begin + "'a(b' is not a regular expression, at byte 3: missing closing parenthesis");
  BOOST_TEST(refused({.kind = RewardKind::regex, .pattern = "a|\\Gb"}) ==
             begin + "'a|\\Gb' has \\G, the start of a search; write ^ or \\A");
  for (const char* pattern : {"\\\\G", "\\Q\\G\\E", "\\Q\\G", "G\\d"})
    BOOST_CHECK_NO_THROW(Rewards({{.kind = RewardKind::regex, .pattern = pattern}}));
  BOOST_TEST(refused({.kind = RewardKind::regex, .pattern = "\\C"})
                 .starts_with(begin + "'\\C' is not a regular expression"));
  BOOST_TEST(refused({.kind = RewardKind::program}) == begin + "there is no command");
  BOOST_TEST(refused({.kind = RewardKind::program, .command = {""}}) == begin + "there is no command");
  BOOST_TEST(refused({.kind = RewardKind::program, .command = {"true", std::string(1, '\0')}}) ==
             begin + "the command has a NUL character");
  for (const double timeout : {0.0, -1.0, 2e6, std::numeric_limits<double>::quiet_NaN()})
    BOOST_TEST(refused({.kind = RewardKind::program, .command = {"true"}, .timeout_s = timeout})
                   .starts_with(begin + "timeout_s must be positive and at most 1000000, got "));
  BOOST_TEST(error_text<NotSupported>([] { Rewards({}); }) == "kformer::Rewards: there is no reward");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
