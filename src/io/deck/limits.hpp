// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>

#include "io/deck/diagnostics.hpp"

namespace kformer::Impl::decks {

/// Bytes of a deck; nobody writes longer ones by hand.
constexpr std::size_t max_deck_bytes = std::size_t{1} << 20;
/// Bytes of a line.
constexpr std::size_t max_line_bytes = 4096;
/// Dots in one key.
constexpr int max_key_dots = 16;

/// Refuses, before it is parsed, a text that toml++ 3.3 would overflow the stack on.
/// \returns whether the text is within the limits
bool within_limits(const std::shared_ptr<const SourceText>& source, Diagnostics& diagnostics);

}  // namespace kformer::Impl::decks
