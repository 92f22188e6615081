// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace kformer::Impl::data {

/// A pattern, or a text as it is, to be found in texts.
class Search {
 public:
  /// A regular expression.
  /// \throws NotSupported saying what is wrong with it
  static Search pattern(std::string_view expression, bool ignore_case);
  /// A text whose letters may be of any case.
  /// \param whole whether it must be all that is searched
  static Search text(std::string_view text, bool whole);

  /// \throws RewardError if the search takes too long
  bool is_in(std::string_view text) const;

 private:
  Search(std::string_view expression, std::uint32_t options, bool whole = false);

  std::string m_expression;
  std::shared_ptr<const void> m_code;
  bool m_whole = false;  ///< what is found must be all that is searched
};

}  // namespace kformer::Impl::data
