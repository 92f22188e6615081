// SPDX-License-Identifier: MIT
#include "text/steps/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <ctime>

#include "io/utf8.hpp"
#include "text/base/file.hpp"

namespace kformer::Impl::tokenizers {
namespace {

/// A search looks at so many places at once for the begin of a match: PCRE2 cannot be interrupted.
constexpr std::size_t places_of_search = 64;

/// The processor time of a text. The limit of PCRE2 is that of one place, and each of a long text may come near it.
/// Patterns of published tokenizers take less than 1 µs per byte.
class SearchTime {
 public:
  explicit SearchTime(std::size_t bytes) : m_limit(0.1 + 1e-5 * static_cast<double>(bytes)) {}

  /// Whether it is used up, after so many places more. To ask the system at each of them would take longer than
  /// the search.
  bool used_up(std::size_t places) {
    m_places += places;
    if (m_places < places_of_search) return false;
    m_places = 0;
    if (m_begin < 0) m_begin = now();
    return now() - m_begin > m_limit;
  }

 private:
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  double m_limit, m_begin = -1;
  std::size_t m_places = 0;
};

std::string message_of(int code) {
  unsigned char text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

/// Where PCRE2 reads the beginning of `rest` otherwise than Oniguruma, which reads the patterns of these files: what is
/// there; else nothing.
std::string_view read_otherwise(std::string_view rest) {
  const auto until = [&](std::string_view letters, std::size_t from) {
    return std::min(rest.find_first_not_of(letters, from), rest.size());
  };
  const auto at = [&](std::size_t i) { return i < rest.size() ? rest[i] : '\0'; };
  if (rest[0] == '{') {
    const std::size_t end = until("0123456789,", 1), next = end + 1;
    if (at(end) != '}' || end == 1) return {};
    // `{3}?` is none or three, and `{1,3}+` is `{1,3}` again and again.
    const bool alike =
        rest[1] != ',' && at(next) != '+' && (at(next) != '?' || rest.substr(0, end).find(',') != rest.npos);
    return alike ? std::string_view() : rest.substr(0, next + 1);
  }
  if (rest.starts_with("(?")) {
    const std::size_t end = until("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-", 2);
    const std::string_view options = rest.substr(2, end - 2);
    const bool set = at(end) == ')' || at(end) == ':';
    // Options up to the end of a group concern its alternatives in other ways.
    const bool alike = !set || options.empty() || (options == "i" && at(end) == ':');
    return alike ? std::string_view() : rest.substr(0, end + 1);
  }
  return {};
}

/// The expression in PCRE2's syntax. Most of the syntax is common; `\s` there is White_Space here, and what
/// is not known to be the same is refused.
std::string to_pcre2(std::string_view expression, const std::string& file) {
  if (expression.find("&&") != std::string_view::npos)
    unsupported(file, "the pattern " + in_quotes(expression), "it has '&&', an intersection of classes");
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '[' && in_class)
      unsupported(file, "the pattern " + in_quotes(expression), "it has a class within a class");
    if (c == '[' || c == ']') in_class = c == '[';
    const bool named = result.ends_with("\\p") || result.ends_with("\\P") || result.ends_with("\\x");
    const bool all_caseless = i == 0 && expression.starts_with("(?i)");
    if (!in_class && !named && !all_caseless)
      if (const std::string_view other = read_otherwise(expression.substr(i)); !other.empty())
        unsupported(file, "the pattern " + in_quotes(expression),
                    "it has " + in_quotes(other) + ", which has another meaning elsewhere");
    if (c != '\\' || i + 1 == expression.size()) {
      result += c;
      continue;
    }
    const char escaped = expression[++i];
    const bool alphanumeric = (escaped >= '0' && escaped <= '9') || (escaped >= 'a' && escaped <= 'z') ||
                              (escaped >= 'A' && escaped <= 'Z');
    // `\xE9` is a byte in these files.
    const bool of_byte = escaped == 'x' && i + 1 < expression.size() &&
                         std::string_view("89abcdefABCDEF").find(expression[i + 1]) != std::string_view::npos;
    if (escaped == 's') {
      result += "\\p{White_Space}";
    } else if (escaped == 'S') {
      result += "\\P{White_Space}";
    } else if (!alphanumeric ||
               (!of_byte && std::string_view("dDpPrntx").find(escaped) != std::string_view::npos)) {
      result += {'\\', escaped};
    } else {
      unsupported(file, "the pattern " + in_quotes(expression),
                  std::string("it has the escape '\\") + escaped + "'");
    }
  }
  return result;
}

}  // namespace

Pattern::Pattern(std::string_view expression, const std::string& file)
    : m_expression(expression), m_file(file) {
  const std::string translated = to_pcre2(expression, file);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                    &error, &place, nullptr);
  if (code == nullptr)
    refuse(file,
           "the pattern " + in_quotes(expression) + " is not a valid regular expression: " + message_of(error));
  m_code = {code, [](pcre2_code* owned) { pcre2_code_free(owned); }};
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // faster where it can be had
}

std::vector<Stretch> Pattern::find_all(std::string_view text) const {
  const auto* code = static_cast<const pcre2_code*>(m_code.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(code, nullptr),
      [](pcre2_match_data* d) { pcre2_match_data_free(d); });
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(
      pcre2_match_context_create(nullptr), [](pcre2_match_context* c) { pcre2_match_context_free(c); });
  const auto abort = [&](const std::string& why) {
    unsupported(m_file, "the pattern " + in_quotes(m_expression), "the search was aborted: " + why);
  };
  SearchTime time(text.size());
  std::vector<Stretch> stretches;
  std::size_t end = 0;  // of the match before
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t last = std::min(text.size(), start + places_of_search - 1);
    pcre2_set_offset_limit(context.get(), last);
    const auto search = [&](std::uint32_t options) {
      return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options,
                         data.get(), context.get());
    };
    int found = search(PCRE2_NO_UTF_CHECK);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = search(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) abort(message_of(found));
    if (time.used_up((found < 0 ? last : pcre2_get_ovector_pointer(data.get())[0]) - start + 1))
      abort("it takes too long for this text of " + std::to_string(text.size()) +
            " bytes; give shorter texts, or check the tokenizer file");
    if (found == PCRE2_ERROR_NOMATCH) {
      start = last + 1;
      while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
      continue;
    }
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data.get());
    const bool empty = match[0] >= match[1];
    if (!empty || match[0] > end || stretches.empty()) {
      if (match[0] > end) stretches.push_back({end, match[0], false});
      end = std::max<std::size_t>(match[0], match[1]);
      stretches.push_back({match[0], end, true});
    }
    start = std::max<std::size_t>(match[0], match[1]);
    if (empty && start < text.size())
      start += first_character(text.substr(start)).bytes;
    else if (empty)
      break;
  }
  if (end < text.size()) stretches.push_back({end, text.size(), false});
  return stretches;
}

}  // namespace kformer::Impl::tokenizers
