// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "io/schema/diagnostics.hpp"

namespace kformer::Impl::schema {

/// Bytes of a line.
constexpr std::size_t max_line_bytes = 4096;
/// Dots in one key.
constexpr int max_key_dots = 16;

/// Refuses a text on which toml++ 3.3 would overflow the stack, before it is parsed.
/// \returns whether the text is within the limits
bool within_limits(const std::shared_ptr<const SourceText>& source, Diagnostics& diagnostics);

/// Refuses letters beyond ASCII outside of strings and comments: TOML has none there, and toml++ 3.4 reads beyond
/// its tables for one in a key.
/// \param text the beginning of the source that is looked at
/// \returns whether there is none
bool bare_text_is_ascii(const std::shared_ptr<const SourceText>& source, std::string_view text,
                        Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
