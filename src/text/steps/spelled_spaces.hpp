// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

/// \file
/// Spaces as SentencePiece vocabularies spell them.

namespace kformer::Impl::tokenizers {

/// U+2581, which represents a space.
inline constexpr std::string_view spelled_space = "\xE2\x96\x81";

/// A spelling with `space` for each U+2581.
std::string with_spaces(std::string_view spelling, std::string_view space);

}  // namespace kformer::Impl::tokenizers
