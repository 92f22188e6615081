// SPDX-License-Identifier: MIT
#include "data/rewards/last_number.hpp"

#include <algorithm>

namespace kformer::Impl::data {
namespace {

constexpr std::int64_t largest_exponent = 1'000'000'000'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// A text and a place in it.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : m_text(text) {}

  /// Whether there is another number, at which it stops.
  bool find_next() {
    while (m_at < m_text.size() && !begins_number()) ++m_at;
    return m_at < m_text.size();
  }

  /// Reads the number that was found; nothing if it is that below a fraction bar.
  std::optional<Decimal> read_number() {
    const bool of_fraction = follows_fraction_bar();
    const Decimal number = read();
    return of_fraction ? std::nullopt : std::optional(number);
  }

 private:
  char at(std::size_t place) const { return place < m_text.size() ? m_text[place] : '\0'; }

  bool begins_number() const {
    if (is_digit(at(m_at))) return true;
    return at(m_at) == '.' && is_digit(at(m_at + 1)) && !(m_at > 0 && is_digit(m_text[m_at - 1]));
  }

  /// Whether the number at this place is the lower one of a fraction: 1/2, 1 / 2, (a + 1)/2, \frac{1}{2}.
  bool follows_fraction_bar() const {
    const auto without_spaces = [](std::string_view text) {
      return text.substr(0, text.find_last_not_of(' ') + 1);
    };
    std::string_view before = m_text.substr(0, m_at);
    if (before.ends_with("}{")) return true;
    before = without_spaces(before);
    for (const std::string_view bar : {"/", "\xE2\x81\x84"}) {
      if (!before.ends_with(bar)) continue;
      before = without_spaces(before.substr(0, before.size() - bar.size()));
      return !before.empty() && (is_digit(before.back()) || before.back() == ')' || before.back() == '}');
    }
    return false;
  }

  Decimal read() {
    Decimal number{.negative = is_negative(), .digits = take_digits(), .exponent = 0};
    if (!number.digits.empty() && number.digits.size() <= 3)
      while (at_group()) {
        ++m_at;
        number.digits += take_digits();
      }
    if (at(m_at) == '.' && is_digit(at(m_at + 1))) {
      ++m_at;
      const std::string fraction = take_digits();
      number.digits += fraction;
      number.exponent = -std::ssize(fraction);
    }
    number.exponent += take_exponent();
    return normal(std::move(number));
  }

  /// A minus is a sign unless it follows what something can be subtracted from.
  bool is_negative() const {
    constexpr std::string_view hyphen = "-", minus = "\xE2\x88\x92";
    const std::string_view before = m_text.substr(0, m_at);
    for (const std::string_view sign : {hyphen, minus}) {
      if (!before.ends_with(sign)) continue;
      if (before.size() == sign.size()) return true;
      const char c = before[before.size() - sign.size() - 1];
      return !is_digit(c) && !is_letter(c) && c != ')';
    }
    return false;
  }

  std::string take_digits() {
    const std::size_t begin = m_at;
    while (is_digit(at(m_at))) ++m_at;
    return std::string(m_text.substr(begin, m_at - begin));
  }

  /// Whether a comma and exactly three digits follow.
  bool at_group() const {
    return at(m_at) == ',' && is_digit(at(m_at + 1)) && is_digit(at(m_at + 2)) && is_digit(at(m_at + 3)) &&
           !is_digit(at(m_at + 4));
  }

  std::int64_t take_exponent() {
    if (at(m_at) != 'e' && at(m_at) != 'E') return 0;
    std::size_t place = m_at + 1;
    const bool negative = at(place) == '-';
    if (negative || at(place) == '+') ++place;
    std::size_t end = place;
    std::int64_t exponent = 0;
    for (; is_digit(at(end)); ++end) exponent = std::min(10 * exponent + (at(end) - '0'), largest_exponent);
    if (end == place || is_letter(at(end))) return 0;
    m_at = end;
    return negative ? -exponent : exponent;
  }

  static Decimal normal(Decimal number) {
    std::string& digits = number.digits;
    digits.erase(0, digits.find_first_not_of('0'));
    if (digits.empty()) return {};
    const auto last = digits.find_last_not_of('0');
    number.exponent += std::ssize(digits) - 1 - static_cast<std::int64_t>(last);
    number.exponent = std::clamp(number.exponent, -largest_exponent, largest_exponent);
    digits.resize(last + 1);
    return number;
  }

  std::string_view m_text;
  std::size_t m_at = 0;
};

}  // namespace

std::optional<Decimal> last_number(std::string_view text) {
  Scanner scanner(text);
  std::optional<Decimal> last;
  while (scanner.find_next()) last = scanner.read_number();
  return last;
}

}  // namespace kformer::Impl::data
