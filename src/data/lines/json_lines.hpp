// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

/// \file
/// Files with one JSON object in a line.

namespace kformer::Impl::data {

/// A line of a file.
class JsonLine {
 public:
  /// \param source   the file, for error texts
  /// \param number   counts from 1
  /// \param expected what a line must be, for error texts
  JsonLine(const std::string& source, std::int64_t number, const char* expected)
      : m_source(source), m_number(number), m_expected(expected) {}

  /// \throws FileError "'chat.jsonl', line 3: {what}"
  [[noreturn]] void refuse(const std::string& what) const;
  /// \throws FileError the same with what was expected
  [[noreturn]] void refuse_line(const std::string& what) const;

  /// The value of the line. It may be copied and written: it is not nested deeply.
  nlohmann::json parse(std::string_view text) const;

  /// Runs `read`; what it throws as NotSupported refuses the line.
  void read(const std::function<void()>& read) const;

 private:
  const std::string& m_source;
  std::int64_t m_number;
  const char* m_expected;
};

/// Calls `read(line, text)` for every line that is not blank. A mark of byte order at the beginning is no text.
void for_each_line(std::string_view contents, const std::string& source, const char* expected,
                   const std::function<void(const JsonLine&, std::string_view)>& read);

}  // namespace kformer::Impl::data
