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

/// A pattern of PCRE2, or null with an error.
pcre2_code* compile(std::string_view expression, int& error) {
  PCRE2_SIZE place = 0;
  return pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &error,
      &place, nullptr);
}

/// Whether this is the name of a script, such as Han.
bool is_script(std::string_view name) {
  int error = 0;
  pcre2_code* code = compile("\\p{sc:" + std::string(name) + "}", error);
  pcre2_code_free(code);
  return code != nullptr;
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

/// Turns an expression into PCRE2's syntax. Most of the syntax is common; `\s` there is White_Space here, and what is not
/// known to be the same is refused.
class Translation {
 public:
  Translation(std::string_view expression, const std::string& file)
      : m_rest(expression), m_expression(expression), m_file(file) {}

  std::string result() {
    if (m_expression.find("&&") != m_expression.npos) refuse("'&&', an intersection of classes");
    if (m_rest.starts_with("(?i)")) {
      m_caseless = {true};
      take(4);
    }
    while (!m_rest.empty()) m_rest[0] == '\\' && m_rest.size() > 1 ? take_escape() : take_character();
    return m_result;
  }

 private:
  [[noreturn]] void refuse(const std::string& part) const {
    unsupported(m_file, "the pattern " + in_quotes(m_expression), "it has " + part);
  }

  void take(std::size_t count) {
    m_result += m_rest.substr(0, count);
    m_rest.remove_prefix(std::min(count, m_rest.size()));
  }

  void take_character() {
    const char c = m_rest[0];
    if (c == '[' && m_in_class) refuse("a class within a class");
    if (c == '[' || c == ']') m_in_class = c == '[';
    if (!m_in_class) {
      if (const std::string_view other = read_otherwise(m_rest); !other.empty())
        refuse(in_quotes(other) + ", which has another meaning elsewhere");
      if (c == '(') m_caseless.push_back(m_caseless.back() || m_rest.starts_with("(?i:"));
      if (c == ')' && m_caseless.size() > 1) m_caseless.pop_back();
    }
    take(1);
  }

  void take_escape() {
    const char escaped = m_rest[1];
    const std::string_view behind = m_rest.substr(2);
    const bool alphanumeric = (escaped >= '0' && escaped <= '9') || (escaped >= 'a' && escaped <= 'z') ||
                              (escaped >= 'A' && escaped <= 'Z');
    // `\xE9` is a byte in these files.
    const bool of_byte = escaped == 'x' && behind.find_first_of("89abcdefABCDEF") == 0;
    if (escaped == 's' || escaped == 'S') {
      m_result += escaped == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      m_rest.remove_prefix(2);
    } else if ((escaped == 'p' || escaped == 'P') && behind.starts_with('{')) {
      take_property();
    } else if (escaped == 'x' && behind.starts_with('{')) {
      take(std::min(m_rest.find('}'), m_rest.size() - 1) + 1);
    } else if (!alphanumeric ||
               (!of_byte && std::string_view("dDpPrntx").find(escaped) != std::string_view::npos)) {
      take(2);
    } else {
      refuse(std::string("the escape '\\") + escaped + "'");
    }
  }

  /// `\p{Han}`: a script alone means its extensions to PCRE2, among which are marks and punctuation of many scripts.
  void take_property() {
    const bool negated = m_rest.substr(3).starts_with('^');
    const std::size_t begin = negated ? 4 : 3, end = std::min(m_rest.find('}'), m_rest.size());
    const std::string name(m_rest.substr(begin, end - begin));
    // Without case PCRE2 takes each for all of them.
    const bool of_case = name == "Lu" || name == "Ll" || name == "Lt";
    if (of_case && m_caseless.back())
      refuse("'\\p{" + name + "}' without case, which has another meaning elsewhere");
    take(begin);
    if (is_script(name)) m_result += "sc:";
    take(name.size() + 1);
  }

  std::string_view m_rest, m_expression;
  const std::string& m_file;
  std::string m_result;
  bool m_in_class = false;
  std::vector<bool> m_caseless{false};  // of the groups around a place
};

}  // namespace

Pattern::Pattern(std::string_view expression, const std::string& file)
    : m_expression(expression), m_file(file) {
  const std::string translated = Translation(expression, file).result();
  int error = 0;
  pcre2_code* code = compile(translated, error);
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
