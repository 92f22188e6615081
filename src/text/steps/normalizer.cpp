// SPDX-License-Identifier: MIT
#include "text/steps/normalizer.hpp"

#include <algorithm>
#include <utility>

#include "text/base/file.hpp"
#include "text/base/limits.hpp"

#ifdef KFORMER_ENABLE_ICU
#include <unicode/unorm2.h>
#include <unicode/ustring.h>
#endif

namespace kformer::Impl::tokenizers {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

#ifdef KFORMER_ENABLE_ICU

void require(UErrorCode error, const char* what, const std::string& file) {
  if (U_FAILURE(error)) unsupported(file, what, std::string("ICU says ") + u_errorName(error));
}

const UNormalizer2* instance_of(const std::string& form, const std::string& file) {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* normalizer = form == "NFC"    ? unorm2_getNFCInstance(&error)
                                   : form == "NFD"  ? unorm2_getNFDInstance(&error)
                                   : form == "NFKC" ? unorm2_getNFKCInstance(&error)
                                                    : unorm2_getNFKDInstance(&error);
  require(error, "a normalizer", file);
  return normalizer;
}

std::u16string to_utf16(std::string_view text, const std::string& file) {
  UErrorCode error = U_ZERO_ERROR;
  std::u16string wide(text.size(), u'\0');
  std::int32_t length = 0;
  u_strFromUTF8(wide.data(), static_cast<std::int32_t>(wide.size()), &length, text.data(),
                static_cast<std::int32_t>(text.size()), &error);
  require(error, "text of this length", file);
  wide.resize(static_cast<std::size_t>(length));
  return wide;
}

std::string to_utf8(const std::u16string& wide, const std::string& file) {
  UErrorCode error = U_ZERO_ERROR;
  constexpr std::size_t most_bytes = 3;  // of a unit of UTF-16
  std::string text(wide.size() * most_bytes, '\0');
  std::int32_t length = 0;
  u_strToUTF8(text.data(), static_cast<std::int32_t>(text.size()), &length, wide.data(),
              static_cast<std::int32_t>(wide.size()), &error);
  require(error, "text of this length", file);
  text.resize(static_cast<std::size_t>(length));
  return text;
}

std::string normalize(const UNormalizer2* normalizer, const std::string& text, const std::string& file) {
  const std::u16string wide = to_utf16(text, file);
  const auto length = static_cast<std::int32_t>(wide.size());
  UErrorCode error = U_ZERO_ERROR;
  std::u16string result(wide.size() + 16, u'\0');
  const auto run = [&] {
    error = U_ZERO_ERROR;
    return unorm2_normalize(normalizer, wide.data(), length, result.data(),
                            static_cast<std::int32_t>(result.size()), &error);
  };
  std::int32_t needed = run();
  if (error == U_BUFFER_OVERFLOW_ERROR) {
    result.resize(static_cast<std::size_t>(needed) + 1);
    needed = run();
  }
  require(error, "text of this length", file);
  result.resize(static_cast<std::size_t>(needed));
  return to_utf8(result, file);
}

#endif

}  // namespace

#ifdef KFORMER_ENABLE_ICU

NormalStep unicode_form(const std::string& form, const std::string& file) {
  return [normalizer = instance_of(form, file), file](std::string text) {
    return is_ascii(text) ? text : normalize(normalizer, text, file);
  };
}

#else

NormalStep unicode_form(const std::string& form, const std::string& file) {
  constexpr const char* remedy = "this build has no ICU; build with -DKformer_ENABLE_ICU=ON";
  if (form != "NFC") unsupported(file, "the normalizer " + form, remedy);
  return [file](std::string text) {
    // Characters from U+0300 on have leads from 0xCC on.
    for (const char c : text)
      if (static_cast<unsigned char>(c) >= 0xCC)
        unsupported(file, "text beyond Latin letters with the normalizer NFC", remedy);
    return text;
  };
}

#endif

NormalStep prepend_text(std::string before) {
  return [before = std::move(before)](std::string text) { return text.empty() ? text : before + text; };
}

NormalStep replace_text(Finder finder, std::string by) {
  return [finder = std::move(finder), by = std::move(by)](std::string text) {
    std::string result;
    for (const Stretch& s : finder(text)) {
      result += s.match ? std::string_view(by) : std::string_view(text).substr(s.begin, s.end - s.begin);
      require_moderate_growth(text.size(), result.size());
    }
    return result;
  };
}

}  // namespace kformer::Impl::tokenizers
