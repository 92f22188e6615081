// SPDX-License-Identifier: MIT
#include "data/rewards/search.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <ctime>

#include "kformer/core/error.hpp"
#include "kformer/data/rewards.hpp"

namespace kformer::Impl::data {
namespace {

/// At each place where a match could begin. It is far from what patterns need, and takes milliseconds.
constexpr std::uint32_t most_steps = 1'000'000;
/// PCRE2 cannot be interrupted, so it looks at so many places at once.
constexpr std::size_t places_of_search = 16;
constexpr double seconds = 1, seconds_per_byte = 1e-6;

double processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string message_of(int code) {
  unsigned char text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

/// Whether a pattern asks where a search started, which each part of a search does anew.
bool asks_for_the_start(std::string_view expression) {
  for (auto at = expression.find('\\'); at < expression.size() - 1; at = expression.find('\\', at + 2)) {
    if (expression[at + 1] == 'G') return true;
    if (expression[at + 1] == 'Q') at = std::min(expression.find("\\E", at), expression.size() - 2);
  }
  return false;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

Search Search::pattern(std::string_view expression, bool ignore_case) {
  if (asks_for_the_start(expression))
    throw NotSupported(fmt::format("'{}' has \\G, the start of a search; write ^ or \\A", expression));
  return {expression, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | (ignore_case ? PCRE2_CASELESS : 0)};
}

Search Search::text(std::string_view text, bool whole) {
  // Not PCRE2_ANCHORED, which means the start of each part of a search.
  return {text, PCRE2_LITERAL | PCRE2_CASELESS, whole};
}

Search::Search(std::string_view expression, std::uint32_t options, bool whole)
    : m_expression(expression), m_whole(whole) {
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(m_expression.data()), m_expression.size(),
                                   options | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_USE_OFFSET_LIMIT,
                                   &error, &place, nullptr);
  if (code == nullptr)
    throw NotSupported(
        fmt::format("'{}' is not a regular expression, at byte {}: {}", expression, place, message_of(error)));
  m_code = {code, [](pcre2_code* owned) { pcre2_code_free(owned); }};
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // faster where it can be had
}

bool Search::is_in(std::string_view text) const {
  if (text.data() == nullptr) text = "";  // which PCRE2 does not take
  const auto* code = static_cast<const pcre2_code*>(m_code.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(code, nullptr),
      [](pcre2_match_data* d) { pcre2_match_data_free(d); });
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(
      pcre2_match_context_create(nullptr), [](pcre2_match_context* c) { pcre2_match_context_free(c); });
  pcre2_set_match_limit(context.get(), most_steps);
  const double end = processor_time() + seconds + seconds_per_byte * static_cast<double>(text.size());
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t last = std::min(text.size(), start + places_of_search - 1);
    pcre2_set_offset_limit(context.get(), last);
    const auto search = [&](std::uint32_t options) {
      return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options,
                         data.get(), context.get());
    };
    int found = search(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = search(PCRE2_NO_JIT);
    if (found >= 0) {
      const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data.get());
      return !m_whole || (place[0] == 0 && place[1] == text.size());
    }
    const bool late = processor_time() > end;
    if (found != PCRE2_ERROR_NOMATCH || late)
      throw RewardError(
          fmt::format("kformer::Rewards: the search for '{}' in a completion of {} bytes was aborted: {}; "
                      "write a pattern that "
                      "backtracks less",
                      m_expression, text.size(), late ? "it takes too long" : message_of(found)));
    start = last + 1;
    while (start < text.size() && continues_character(text[start])) ++start;
  }
  return false;
}

}  // namespace kformer::Impl::data
