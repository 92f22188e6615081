// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kformer::Impl {

/// The text with small letters in place of those of ASCII that are not.
std::string lower(std::string_view word);

/// Whether `word` is `name` but for its case, or what other libraries call it.
bool is_same_name(std::string_view word, std::string_view name);

/// The up to `limit` names that take the fewest single-character edits to become `word`, closest first; names
/// that share too little with it to be a typo are left out.
std::vector<std::string> nearest_names(std::string_view word, const std::vector<std::string>& names,
                                       std::size_t limit = 3);

/// "; did you mean 'a' or 'b'?", or "; known: a, b, c, ..." if no name is similar, for the end of an error
/// text.
std::string suggest_names(std::string_view word, const std::vector<std::string>& names);

}  // namespace kformer::Impl
