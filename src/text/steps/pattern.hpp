// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kformer::Impl::tokenizers {

/// A piece of a text: a match of a pattern, or the text between two matches.
struct Stretch {
  std::size_t begin, end;
  bool match;
};

/// A regular expression as tokenizers publish them (Oniguruma's syntax), run by PCRE2 on UTF-8 with Unicode's
/// properties of characters.
class Pattern {
 public:
  /// \param expression the regular expression
  /// \param file       name of the file in error texts
  /// \throws FileError if it is not a regular expression
  /// \throws NotSupported if its meaning may differ between the two syntaxes
  Pattern(std::string_view expression, const std::string& file);

  /// The matches in `text`, from left to right, and the text between them.
  /// \throws NotSupported if the search takes more steps or time than any published pattern needs
  std::vector<Stretch> find_all(std::string_view text) const;

 private:
  std::string m_expression;
  std::string m_file;
  std::shared_ptr<const void> m_code;
};

}  // namespace kformer::Impl::tokenizers
